// SPDX-License-Identifier: MIT
#pragma once

#include "kformer/io/result_file.hpp"

namespace kformer::drivers {

/// Before the finished cases of an unfinished run are taken: both runs must have the same deck, except [output] and the time
/// limit, the same build and the same processors. Its commands become part of the history of `file`, which knows its own
/// provenance.
/// \throws FileError naming what differs
void resume_run(ResultFile& file);

}  // namespace kformer::drivers
