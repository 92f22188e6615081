// SPDX-License-Identifier: MIT
#include "layer/layer_results.hpp"

#include <fmt/format.h>

#include <limits>

namespace kformer::drivers {

namespace {

using enum ColumnType;

constexpr double none = std::numeric_limits<double>::quiet_NaN();

double matmul_rate(const CaseResult& result, const MachineLimits& limits) {
  return dtype_of_name(result.point.dtype) == DType::f64 ? limits.matmul_rate_f64 : limits.matmul_rate_f32;
}

std::vector<std::string> class_names() {
  std::vector<std::string> names;
  for (int c = 0; c < memory_classes; ++c) names.emplace_back(to_string(static_cast<MemoryClass>(c)));
  return names;
}

Table& declare_cases(ResultFile& file) {
  Table& t = file.table("cases", "case", "case of the sweep, in running order");
  t.dimension("repeat", "timing sample of a case");
  t.column({"op", text, "1", "what was run"});
  t.column({"impl", text, "1", "how attention was computed"});
  t.column({"dtype", text, "1", "storage type"});
  t.column({"execution_space", text, "1", "Kokkos execution space"});
  t.column({"direction", flag, "1", "pass that was timed", "", {"forward", "backward"}});
  t.column({"causal", flag, "1", "whether later keys are hidden", "", {"no", "yes"}});
  for (const char* name : {"batch", "seq_len", "num_attention_heads", "num_key_value_heads", "head_dim",
                           "hidden_size", "intermediate_size", "window"})
    t.column({name, i64, "1", std::string(name) + " of the case"});
  t.column({"time", f64, "s", "seconds per call, every sample", "repeat"});
  t.column({"inner_iterations", i64, "1", "calls in one sample"});
  t.column({"time_median", f64, "s", "median of the samples"});
  t.column({"time_p10", f64, "s", "10th percentile of the samples"});
  t.column({"time_p90", f64, "s", "90th percentile of the samples"});
  t.column({"flops", f64, "1", "floating-point operations of one call, counted from the algorithm"});
  t.column({"flop_rate", f64, "1/s", "flops over the median time"});
  t.column({"bytes_min", f64, "byte", "compulsory traffic of one call"});
  t.column({"share_of_limit", f64, "1", "least time the machine's limits allow over the median time"});
  t.column({"peak_bytes", u64, "byte", "most bytes booked in the ledger at once"});
  t.column({"predicted_bytes", u64, "byte", "the same, forecast without allocating"});
  t.column({"max_abs_err", f64, "1", "largest error of any result against the f64 layer"});
  t.column({"max_rel_err", f64, "1", "largest error of any tensor over that tensor's largest value"});
  t.column({"kernels", text, "1", "function:kernel, in the order they first ran"});
  t.column({"status", flag, "1", "how the case ended", "", case_status_names});
  t.column({"message", text, "1", "why, where it did not end well"});
  t.attribute("flops_formula",
              "2 per multiply-add of the linear layers; attention 4*batch*heads*head_dim per visible query-key "
              "pair with half "
              "the square when causal; backward 2 times linear and 2.5 times attention");
  t.attribute("share_of_limit_formula",
              "max(flops / matmul_rate, bytes_min / copy_bandwidth) / time_median, see /machine");
  return t;
}

Table& declare_classes(ResultFile& file) {
  Table& t = file.table("memory/classes", "case", "case of the sweep");
  t.dimension("memory_class", "what the memory was for", class_names());
  t.column({"peak_bytes", u64, "byte", "most bytes of the class held at once", "memory_class"});
  return t;
}

Table& declare_spaces(ResultFile& file) {
  Table& t = file.table("memory/spaces", "entry", "memory space of a case");
  t.column({"case", i32, "1", "row in /cases"});
  t.column({"name", text, "1", "Kokkos memory space"});
  t.column(
      {"peak_bytes", u64, "byte", "most bytes held at once, as the Kokkos Tools callbacks report allocations"});
  return t;
}

Table& declare_regions(ResultFile& file) {
  Table& t = file.table("regions", "region", "region of the profiling pass of a case");
  t.column({"case", i32, "1", "row in /cases"});
  t.column({"path", text, "1", "names from the outermost region, joined by /"});
  t.column({"parent", i32, "1", "row of the region around it, -1 for none"});
  t.column({"depth", i32, "1", "0 for the outermost"});
  t.column({"count", i64, "1", "visits"});
  t.column({"inclusive", f64, "s", "time inside, regions within it included"});
  t.column({"exclusive", f64, "s", "time inside, regions within it not included"});
  t.attribute("fenced", std::int8_t(1));
  t.attribute("overhead_note",
              "from a pass of its own in which every kernel is fenced; not comparable with /cases/time");
  return t;
}

Table& declare_kernels(ResultFile& file) {
  Table& t = file.table("kernels", "kernel", "kernel of the profiling pass of a case, per region");
  t.column({"case", i32, "1", "row in /cases"});
  t.column({"name", text, "1", "label"});
  t.column({"region", text, "1", "path of the region it ran in"});
  t.column({"kind", text, "1", "for, reduce or scan"});
  t.column({"execution_space", text, "1", "Kokkos execution space"});
  t.column({"count", i64, "1", "launches"});
  t.column({"time_total", f64, "s", "of all launches"});
  t.column({"time_min", f64, "s", "of the shortest launch"});
  t.column({"time_max", f64, "s", "of the longest launch"});
  t.attribute("fenced", std::int8_t(1));
  t.attribute("overhead_note",
              "from a pass of its own in which every kernel is fenced; not comparable with /cases/time");
  return t;
}

Table& declare_machine(ResultFile& file) {
  Table& t = file.table("machine", "space", "execution space");
  t.column({"execution_space", text, "1", "Kokkos execution space"});
  t.column({"matmul_rate_f32", f64, "1/s",
            "FLOP/s of a 1024x1024x1024 product in float by the library's best kernel"});
  t.column({"matmul_rate_f64", f64, "1/s", "FLOP/s of the same in double"});
  t.column({"copy_bandwidth", f64, "byte/s", "bytes read and written by a copy of 128 MiB"});
  return t;
}

}  // namespace

double share_of_limit(const CaseResult& result, const MachineLimits& limits) {
  const double median = result.samples.quantile(0.5);
  if (median <= 0) return none;
  return std::max(result.flops / matmul_rate(result, limits), result.bytes_min / limits.copy_bandwidth) /
         median;
}

LayerResults::LayerResults(ResultFile& file, const LlamaConfig& config)
    : m_file(file),
      m_config(config),
      m_cases(declare_cases(file)),
      m_classes(declare_classes(file)),
      m_spaces(declare_spaces(file)),
      m_regions(declare_regions(file)),
      m_kernels(declare_kernels(file)),
      m_machine(declare_machine(file)) {}

void LayerResults::add_machine(const std::string& space, const MachineLimits& limits) {
  m_machine.append({{"execution_space", space},
                    {"matmul_rate_f32", limits.matmul_rate_f32},
                    {"matmul_rate_f64", limits.matmul_rate_f64},
                    {"copy_bandwidth", limits.copy_bandwidth}});
}

void LayerResults::add_case(const CaseResult& result, const MachineLimits& limits) {
  const LayerCase& p = result.point;
  const bool timed = !result.samples.seconds.empty();
  const double median = result.samples.quantile(0.5);
  m_cases.append({{"op", "layer"},
                  {"impl", name_of(p.impl)},
                  {"dtype", p.dtype},
                  {"execution_space", p.execution_space},
                  {"direction", name_of(p.direction)},
                  {"causal", true},
                  {"batch", p.batch},
                  {"seq_len", p.seq_len},
                  {"num_attention_heads", m_config.num_attention_heads},
                  {"num_key_value_heads", m_config.num_key_value_heads},
                  {"head_dim", m_config.head_dim},
                  {"hidden_size", m_config.hidden_size},
                  {"intermediate_size", m_config.intermediate_size},
                  {"window", m_config.sliding_window},
                  {"time", result.samples.seconds},
                  {"inner_iterations", result.samples.inner_iterations},
                  {"time_median", timed ? median : none},
                  {"time_p10", timed ? result.samples.quantile(0.1) : none},
                  {"time_p90", timed ? result.samples.quantile(0.9) : none},
                  {"flops", result.flops},
                  {"flop_rate", timed ? result.flops / median : none},
                  {"bytes_min", result.bytes_min},
                  {"share_of_limit", share_of_limit(result, limits)},
                  {"peak_bytes", std::uint64_t(result.peak_total)},
                  {"predicted_bytes", std::uint64_t(result.predicted)},
                  {"max_abs_err", result.max_abs_err},
                  {"max_rel_err", result.max_rel_err},
                  {"kernels", result.kernels},
                  {"status", case_status_names[static_cast<std::size_t>(result.status)]},
                  {"message", result.message}});
  m_classes.append({{"peak_bytes", std::vector<std::uint64_t>(result.peak.begin(), result.peak.end())}});
  for (const auto& [name, bytes] : result.witnessed)
    m_spaces.append({{"case", m_next}, {"name", name}, {"peak_bytes", bytes}});
  const auto first_region = static_cast<std::int32_t>(m_regions.rows());
  for (const auto& region : result.regions)
    m_regions.append({{"case", m_next},
                      {"path", region.path},
                      {"parent", region.parent < 0 ? -1 : first_region + region.parent},
                      {"depth", region.depth},
                      {"count", region.count},
                      {"inclusive", region.inclusive},
                      {"exclusive", region.exclusive}});
  for (const auto& kernel : result.profile)
    m_kernels.append({{"case", m_next},
                      {"name", kernel.name},
                      {"region", kernel.region},
                      {"kind", kernel.kind},
                      {"execution_space", p.execution_space},
                      {"count", kernel.count},
                      {"time_total", kernel.total},
                      {"time_min", kernel.shortest},
                      {"time_max", kernel.longest}});
  ++m_next;
  m_file.checkpoint();
}

std::string table_head() {
  return fmt::format("{:<8} {:<5} {:<9} {:>5} {:>7} {:<9} {:>10} {:>21} {:>9} {:>6} {:>11} {:>9}  {}\n",
                     "space", "dtype", "direction", "batch", "seq_len", "attention", "median", "p10 - p90",
                     "GFLOP/s", "limit", "peak", "error", "status");
}

std::string table_row(const CaseResult& result, const MachineLimits& limits) {
  const LayerCase& p = result.point;
  const auto milliseconds = [](double s) { return fmt::format("{:.2f} ms", 1e3 * s); };
  const double median = result.samples.quantile(0.5);
  const bool timed = median > 0;
  std::string row = fmt::format(
      "{:<8} {:<5} {:<9} {:>5} {:>7} {:<9} {:>10} {:>21} {:>9} {:>6} {:>11} {:>9}  {}\n", p.execution_space,
      p.dtype, name_of(p.direction), p.batch, p.seq_len, name_of(p.impl), timed ? milliseconds(median) : "-",
      timed ? milliseconds(result.samples.quantile(0.1)) + " - " + milliseconds(result.samples.quantile(0.9))
            : "-",
      timed ? fmt::format("{:.1f}", result.flops / median * 1e-9) : "-",
      timed ? fmt::format("{:.0f} %", 100 * share_of_limit(result, limits)) : "-",
      timed ? format_bytes(result.peak_total) : "-",
      result.max_rel_err == result.max_rel_err ? fmt::format("{:.1e}", result.max_rel_err) : "-",
      case_status_names[static_cast<std::size_t>(result.status)]);
  if (!result.message.empty()) row += "  " + result.message + "\n";
  return row;
}

}  // namespace kformer::drivers
