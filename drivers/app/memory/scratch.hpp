// SPDX-License-Identifier: MIT
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

#include "kformer/io/result_table.hpp"
#include "kformer/model/llama_config.hpp"

/// \file
/// The scratch memory of kernels on hosts. A program that runs kernels reserves it once, before it times or counts
/// anything, so that no kernel allocates. It depends on the threads of a process, not on cases: ledgers, forecasts
/// and budgets are without it, so that they are the same on every machine. It is said and stored beside them, and
/// counts against free memory.

namespace kformer::drivers {

/// Bytes that a thread needs for every kernel of models with these sizes, in proportion to `usual_scratch_bytes`.
/// \param head_dim          features of a head
/// \param kv_heads          heads of keys and values
/// \param quantized_columns elements of the longest row of a quantised weight; 0 without them
std::size_t scratch_per_thread(std::int64_t head_dim, std::int64_t kv_heads,
                               std::int64_t quantized_columns = 0);

/// The same for a model.
/// \param quantized whether weights are
std::size_t scratch_per_thread(const LlamaConfig& config, bool quantized);

/// Bytes that `reserve_scratch` would reserve.
std::size_t forecast_scratch(const std::string& space, std::size_t per_thread);

/// Call it before `reserve_scratch`: Kokkos itself only says that an allocation failed.
/// \param bytes     that would be reserved
/// \param available bytes that are free; nothing: unknown
/// \throws OutOfMemory if not so many are free; the sentence names run.threads
void require_scratch(std::size_t bytes, const std::optional<std::size_t>& available);

/// Reserves scratch memory of the default instance of the space of that name, for as long as the process lives: at
/// most what Kokkos gives a team, and nothing on devices.
/// \returns bytes of all threads
std::size_t reserve_scratch(const std::string& space, std::size_t per_thread);

/// What this process has reserved on the space of that name.
std::size_t reserved_scratch(const std::string& space);

/// The column of a result file that has it.
Column scratch_column();

/// A line that says it, at the end of a run; empty for 0 bytes.
std::string scratch_text(std::size_t bytes);

}  // namespace kformer::drivers
