// SPDX-License-Identifier: MIT
#pragma once

/// \file
/// Caches of keys and values for incremental decoding: one interface, five ways to keep what was seen.

#include "kformer/model/impl/kv_cache_base.hpp"
#include "kformer/model/impl/kv_cache_class.hpp"
#include "kformer/model/impl/kv_cache_kinds.hpp"
