// SPDX-License-Identifier: MIT
#include "support/references.hpp"

namespace kformer::Impl::reference {
KFORMER_EVERY_TEST_REFERENCE();
}
