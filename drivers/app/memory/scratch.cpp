// SPDX-License-Identifier: MIT
#include "app/memory/scratch.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "kformer/core/error.hpp"
#include "kformer/memory/booked_scratch.hpp"
#include "kformer/memory/format_bytes.hpp"
#include "measure/spaces.hpp"

namespace kformer::drivers {

namespace {

std::size_t book(const std::string& space, std::size_t per_thread, Ledger::Mode mode) {
  return measure::on_space(space, [&]<class Exec>(std::type_identity<Exec>) {
    // Kernels that need more than Kokkos gives refuse.
    const auto most = static_cast<std::size_t>(Kokkos::TeamPolicy<Exec>::scratch_size_max(1));
    return kformer::reserve_scratch(Exec(), *Ledger::create(mode), std::min(per_thread, most)).bytes();
  });
}

// By space.
std::map<std::string, std::size_t>& all_reserved() {
  static std::map<std::string, std::size_t> bytes;
  return bytes;
}

}  // namespace

std::size_t scratch_per_thread(std::int64_t head_dim, std::int64_t kv_heads, std::int64_t quantized_columns) {
  // What `usual_scratch_bytes` are enough for: 16 queries per key head make 512 of 32 heads.
  constexpr std::int64_t usual_head_dim = 256, usual_kv_heads = 32, usual_columns = 32768;
  const auto times = [](std::int64_t size, std::int64_t usual) {
    return std::max<std::int64_t>(1, (size + usual - 1) / usual);
  };
  return usual_scratch_bytes *
         static_cast<std::size_t>(std::max(times(head_dim, usual_head_dim) * times(kv_heads, usual_kv_heads),
                                           times(quantized_columns, usual_columns)));
}

std::size_t scratch_per_thread(const LlamaConfig& config, bool quantized) {
  const std::int64_t columns =
      std::max({config.hidden_size, config.attention_size(), config.intermediate_size});
  return scratch_per_thread(config.head_dim, config.num_key_value_heads, quantized ? columns : 0);
}

std::size_t forecast_scratch(const std::string& space, std::size_t per_thread) {
  return book(space, per_thread, Ledger::Mode::count);
}

void require_scratch(std::size_t bytes, const std::optional<std::size_t>& available) {
  if (!available || bytes <= *available) return;
  throw OutOfMemory(
      fmt::format("the kernels need {} of scratch memory, but only {} is available; set a smaller run.threads",
                  format_bytes(bytes), format_bytes(*available)));
}

std::size_t reserve_scratch(const std::string& space, std::size_t per_thread) {
  std::size_t& bytes = all_reserved()[space];
  return bytes = std::max(bytes, book(space, per_thread, Ledger::Mode::allocate));
}

std::size_t reserved_scratch(const std::string& space) {
  const auto found = all_reserved().find(space);
  return found == all_reserved().end() ? 0 : found->second;
}

Column scratch_column() {
  return {.name = "scratch_bytes",
          .type = ColumnType::u64,
          .units = "byte",
          .long_name =
              "scratch memory of kernels on the host, reserved for a whole run, in no peak and no forecast",
          .when = "in files of programs that store it"};
}

std::string scratch_text(std::size_t bytes) {
  if (bytes == 0) return {};
  return fmt::format("scratch: {} of the kernels, reserved for the whole run, in no peak\n",
                     format_bytes(bytes));
}

}  // namespace kformer::drivers
