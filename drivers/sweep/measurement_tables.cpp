// SPDX-License-Identifier: MIT
#include "sweep/measurement_tables.hpp"

#include <algorithm>
#include <limits>
#include <utility>

#include "app/memory/scratch.hpp"
#include "sweep/noise.hpp"

namespace kformer::drivers {

namespace {

using enum ColumnType;

constexpr double none = std::numeric_limits<double>::quiet_NaN();

std::vector<std::string> class_names() {
  std::vector<std::string> names;
  for (int c = 0; c < memory_classes; ++c) names.emplace_back(to_string(static_cast<MemoryClass>(c)));
  return names;
}

Table& declare_classes(ResultFile& file) {
  Table& t = file.table("memory/classes", "case", "case of the sweep");
  t.dimension("memory_class", "memory class", class_names());
  t.column({"peak_bytes", u64, "byte", "peak bytes of the class", "memory_class"});
  return t;
}

Table& declare_spaces(ResultFile& file) {
  Table& t = declare_table_of_cases(file, "memory/spaces", "entry", "memory space of a case");
  t.when("with [profile] memory = \"peak\", and in trainings");
  t.column({"name", text, "1", "Kokkos memory space"});
  t.column(
      {"peak_bytes", u64, "byte", "peak bytes, from the allocations that the Kokkos Tools callbacks report"});
  return t;
}

Table& declare_devices(ResultFile& file) {
  Table& t = declare_table_of_cases(file, "memory/devices", "entry", "GPU of a case");
  t.when("on a device, with NVML");
  t.column({"used_bytes", u64, "byte",
            "in use on the GPU by all processes while the case held its memory, as NVML reports it"});
  t.column({"pool_reserved_bytes", u64, "byte",
            "of these, held by the memory pool of the library's blocks, in use or not"});
  return t;
}

// A table of the profiling pass.
Table& profile_table(ResultFile& file, const std::string& name, const std::string& dimension,
                     const std::string& description) {
  Table& t = file.table(name, dimension, description);
  t.when("with [profile] kernels");
  t.attribute("fenced", std::int8_t(1), "1: the pass waits for every kernel");
  t.attribute("overhead_note", "from a separate pass that fences every kernel; not comparable with /cases/time",
              "what the times are not");
  return t;
}

RecordTable<RegionRow> declare_regions(ResultFile& file) {
  return {profile_table(file, "regions", "region", "region of the profiling pass of a case"),
          {{{"case", i32, "1", "row in /cases"}, &RegionRow::row_of_case},
           {{"path", text, "1", "names from the outermost region, joined by /"}, &RegionRow::path},
           {{"parent", i32, "1", "row of the region around it, -1 for none"}, &RegionRow::parent},
           {{"depth", i32, "1", "0 for the outermost"}, &RegionRow::depth},
           {{"count", i64, "1", "visits"}, &RegionRow::count},
           {finite({"inclusive", f64, "s", "time inside, including nested regions"}), &RegionRow::inclusive},
           {finite({"exclusive", f64, "s", "time inside, excluding nested regions"}), &RegionRow::exclusive}}};
}

RecordTable<KernelRow> declare_kernels(ResultFile& file) {
  return {profile_table(file, "kernels", "kernel", "kernel of the profiling pass of a case, per region"),
          {{{"case", i32, "1", "row in /cases"}, &KernelRow::row_of_case},
           {{"name", text, "1", "label"}, &KernelRow::name},
           {{"region", text, "1", "path of the region it ran in"}, &KernelRow::region},
           {{"kind", text, "1", "for, reduce or scan"}, &KernelRow::kind},
           {{"execution_space", text, "1", "Kokkos execution space"}, &KernelRow::execution_space},
           {{"count", i64, "1", "launches"}, &KernelRow::count},
           {finite({"time_total", f64, "s", "of all launches"}), &KernelRow::total},
           {finite({"time_min", f64, "s", "of the shortest launch"}), &KernelRow::shortest},
           {finite({"time_max", f64, "s", "of the longest launch"}), &KernelRow::longest}}};
}

// Files of earlier programs lack it.
constexpr const char* where_stored = "in files of programs that store it";

Column core_wait_column(const std::string& subject) {
  return {.name = "core_wait_share",
          .long_name = "time in which threads waited for a core, summed over them, over the time of the " +
                       subject + "; NaN: not counted",
          .when = where_stored};
}

using Limits = measure::MachineLimits;

// A limit in /machine.
struct LimitColumn {
  const char* name;
  double Limits::* limit;
  const char* unit;
  const char* description;
};

constexpr LimitColumn limit_columns[] = {
    {"fma_rate_f32", &Limits::fma_rate_f32, "1/s",
     "FLOP/s of independent multiply-adds in registers on all threads, in float"},
    {"fma_rate_f64", &Limits::fma_rate_f64, "1/s", "FLOP/s of the same in double"},
    {"pair_rate_bf16", &Limits::pair_rate_bf16, "1/s",
     "FLOP/s of pairs of bf16 products summed in float, 0 where a host has no such instruction"},
    {"dot_rate_int8", &Limits::dot_rate_int8, "1/s",
     "operations/s of products of bytes summed in integers, two each, 0 where a host has no such instruction"},
    {"copy_bandwidth", &Limits::copy_bandwidth, "byte/s",
     "bytes read and written by a copy that exceeds the caches"},
    {"stream_bandwidth", &Limits::stream_bandwidth, "byte/s", "the same by non-temporal stores"},
    {"update_bandwidth", &Limits::update_bandwidth, "byte/s", "bytes read and written by an update in place"},
    {"read_bandwidth", &Limits::read_bandwidth, "byte/s", "bytes that are only read"},
    {"transfer_rate", &Limits::transfer_rate, "byte/s",
     "bytes copied to host memory and back, one direction at a time"},
    {"matmul_rate_f32", &Limits::matmul_rate_f32, "1/s",
     "FLOP/s of a product of square matrices in float by the library's best kernel: no limit"},
    {"matmul_rate_f64", &Limits::matmul_rate_f64, "1/s", "FLOP/s of the same in double"},
    {"matmul_rate_bf16", &Limits::matmul_rate_bf16, "1/s",
     "FLOP/s of the same with factors and result in bf16"},
    {"matmul_rate_f16", &Limits::matmul_rate_f16, "1/s", "FLOP/s of the same with factors and result in f16"}};

Table& declare_machine(ResultFile& file) {
  Table& t = file.table("machine", "space", "execution space");
  t.when(
      "where the limits of the machine were measured: not in plans, nor with [profile] machine_limits = false");
  t.column({"execution_space", text, "1", "Kokkos execution space"});
  for (const LimitColumn& c : limit_columns) t.column(finite({c.name, f64, c.unit, c.description}));
  t.attribute(
      "sizes",
      "on hosts products of 1024x1024 matrices and arrays of 128 MiB; on devices 4096x4096, 8192x8192 in "
      "16 bits, and 512 MiB",
      "how large the products and arrays were");
  return t;
}

}  // namespace

void drop_rows(Table& table, const char* column, std::size_t from) {
  std::size_t rows = table.rows();
  while (rows > 0 && std::cmp_greater_equal(item<std::int32_t>(table, column, rows - 1), from)) --rows;
  table.keep_rows(rows);
}

Table& declare_table_of_cases(ResultFile& file, const std::string& name, const std::string& dimension,
                              const std::string& description) {
  Table& t = file.table(name, dimension, description);
  t.column({"case", i32, "1", "row in /cases"});
  return t;
}

void declare_leading_columns(Table& t) {
  t.column({"op", text, "1", "what was run"});
  t.column({"impl", text, "1", "implementation of attention"});
  t.column({"dtype", text, "1", "storage type"});
  t.column({"execution_space", text, "1", "Kokkos execution space"});
  constexpr auto directions = names_of<Direction>;
  t.column({"direction", flag, "1", "pass that was timed", "", {directions.begin(), directions.end()}});
  t.column({"causal", flag, "1", "whether later keys are hidden", "", {"no", "yes"}});
}

void declare_measured_columns(Table& t) {
  t.dimension("repeat", "timing sample of a case");
  t.column({"time", f64, "s", "seconds per call, every sample", "repeat"});
  t.column({"inner_iterations", i64, "1", "calls in one sample"});
  t.column(finite_if_ok({"time_median", f64, "s", "median of the samples"}));
  t.column(finite_if_ok({"time_p10", f64, "s", "10th percentile of the samples"}));
  t.column(finite_if_ok({"time_p90", f64, "s", "90th percentile of the samples"}));
  t.column(finite_if_ok(
      {"limits_change", f64, "1",
       "how far the machine's limits before and after the case are apart, relative to the larger"}));
  t.column(core_wait_column("samples"));
  t.column({"noisy", flag, "1", "whether noise decides the time", "", {"no", "yes"}});
  t.attribute("noisy_formula",
              "(time_p90 - time_p10) / time_median > 0.25 with 2 samples or more, or limits_change > 0.25, or "
              "core_wait_share > 0.25, or one sample alone, shorter than 0.1 s",
              "what noisy means");
  t.column(finite({"flops", f64, "1", "floating-point operations of one call, counted from the algorithm"}));
  t.column(finite_if_ok({"flop_rate", f64, "1/s", "flops over the median time"}));
  t.column(finite({"bytes_min", f64, "byte", "compulsory traffic of one call"}));
  t.column(finite_if_ok(
      {"flop_rate_limit", f64, "1/s", "FLOP/s of the dtype by instructions alone, before or after the case"}));
  t.column(finite_if_ok(
      {"bandwidth_limit", f64, "byte/s",
       "highest rate of reads, updates and copies of large arrays, sampled before and after the case"}));
  t.column(finite_if_ok(
      {"share_of_limit", f64, "1", "shortest time that the machine's limits allow, over the median time"}));
  t.attribute("share_of_limit_formula",
              "max(flops / flop_rate_limit, bytes_min / bandwidth_limit) / time_median",
              "what share_of_limit means");
  declare_peak_columns(t);
  declare_check_columns(t);
  t.column({"max_abs_err", f64, "1", "largest error of any result against the f64 reference"});
  t.column({"max_rel_err", f64, "1", "largest error of any tensor over that tensor's largest value"});
  declare_outcome_columns(t, "case");
}

void declare_disturbances(Table& t, const std::string& subject) {
  t.column(core_wait_column(subject));
  t.column({.name = "limits_change",
            .long_name = "how far the machine's limits before and after the " + subject +
                         " are apart, relative to the larger; NaN: not measured",
            .when = where_stored});
  t.column({.name = "noisy",
            .type = flag,
            .long_name = "whether noise decides the times (core_wait_share > 0.25 or limits_change > 0.25)",
            .meanings = {"no", "yes"},
            .when = where_stored});
}

std::vector<Table::Cell> disturbance_cells(const Measurement& m) {
  return {{"core_wait_share", m.core_wait_share}, {"limits_change", m.limits_change}, {"noisy", noisy(m)}};
}

void declare_load(ResultFile& file, double load) {
  file.group("provenance")
      .attribute("load_average", load,
                 "processes that wanted to run before this one; NaN if the system does not say");
}

void declare_peak_columns(Table& t) {
  t.column({"peak_bytes", u64, "byte", "peak bytes in the ledger"});
  t.column({"predicted_bytes", u64, "byte", "the same, forecast without allocating"});
  t.column(scratch_column());
}

void declare_check_columns(Table& t) {
  t.column({"check_bytes", u64, "byte",
            "forecast of the memory that the check takes after the case, 0 without one"});
  t.column({"check_kernels", text, "1", "function:kernel of the reference of the check"});
}

void declare_outcome_columns(Table& t, const std::string& subject) {
  t.column({"kernels", text, "1", "function:kernel, in the order they first ran"});
  t.column({"status", flag, "1", "status of the " + subject, "", case_status_names});
  t.column({"message", text, "1", "reason for a status other than ok"});
}

std::vector<Table::Cell> outcome_cells(const Measurement& m, const std::string& space) {
  return {{"peak_bytes", std::uint64_t(m.peak_total)},
          {"predicted_bytes", std::uint64_t(m.predicted)},
          {"scratch_bytes", std::uint64_t(reserved_scratch(space))},
          {"kernels", m.kernels},
          {"status", case_status_names[static_cast<std::size_t>(m.status)]},
          {"message", m.message}};
}

Measurement outcome_of(const Table& cases, std::size_t row) {
  Measurement m;
  m.status = static_cast<CaseStatus>(item<std::int8_t>(cases, "status", row));
  m.message = item<std::string>(cases, "message", row);
  m.kernels = item<std::string>(cases, "kernels", row);
  m.peak_total = item<std::uint64_t>(cases, "peak_bytes", row);
  m.predicted = item<std::uint64_t>(cases, "predicted_bytes", row);
  return m;
}

measure::Samples samples_of(const Table& cases, std::size_t row) {
  return {items<double>(cases, "time", row), item<std::int64_t>(cases, "inner_iterations", row)};
}

std::vector<Table::Cell> measured_cells(const Measurement& m, const std::string& space) {
  const bool timed = !m.samples.seconds.empty();
  const double median = m.samples.quantile(0.5);
  std::vector<Table::Cell> cells = outcome_cells(m, space);
  cells.insert(cells.end(), {{"time", m.samples.seconds},
                             {"inner_iterations", m.samples.inner_iterations},
                             {"time_median", timed ? median : none},
                             {"time_p10", timed ? m.samples.quantile(0.1) : none},
                             {"time_p90", timed ? m.samples.quantile(0.9) : none},
                             {"limits_change", timed ? m.limits_change : none},
                             {"core_wait_share", m.core_wait_share},
                             {"noisy", noisy(m)},
                             {"flops", m.flops},
                             {"flop_rate", timed ? m.flops / median : none},
                             {"bytes_min", m.bytes_min},
                             {"flop_rate_limit", timed ? m.limits.flop_rate : none},
                             {"bandwidth_limit", timed ? m.limits.bandwidth : none},
                             {"share_of_limit", share_of_limit(m)},
                             {"check_bytes", std::uint64_t(m.check_bytes)},
                             {"check_kernels", m.check_kernels},
                             {"max_abs_err", m.max_abs_err},
                             {"max_rel_err", m.max_rel_err}});
  return cells;
}

double share_of_limit(const Measurement& m) {
  const double median = m.samples.quantile(0.5);
  if (median <= 0) return none;
  return std::max(m.flops / m.limits.flop_rate, m.bytes_min / m.limits.bandwidth) / median;
}

MeasurementTables::MeasurementTables(ResultFile& file)
    : m_classes(declare_classes(file)),
      m_spaces(declare_spaces(file)),
      m_devices(declare_devices(file)),
      m_regions(declare_regions(file)),
      m_kernels(declare_kernels(file)),
      m_machine(declare_machine(file)) {}

void MeasurementTables::add_machine(const std::string& space, const measure::MachineLimits& limits) {
  std::vector<Table::Cell> cells{{"execution_space", space}};
  for (const LimitColumn& c : limit_columns) cells.push_back({c.name, limits.*c.limit});
  m_machine.append(cells);
}

Measurement MeasurementTables::measurement(const Table& cases, std::size_t row) const {
  const auto number = [&](const char* column) { return item<double>(cases, column, row); };
  Measurement m = outcome_of(cases, row);
  m.samples = samples_of(cases, row);
  m.flops = number("flops");
  m.bytes_min = number("bytes_min");
  m.limits.flop_rate = number("flop_rate_limit");
  m.limits.bandwidth = number("bandwidth_limit");
  m.limits_change = number("limits_change");
  m.core_wait_share = number("core_wait_share");
  std::ranges::copy(items<std::uint64_t>(m_classes, "peak_bytes", row), m.peak.begin());
  m.check_bytes = item<std::uint64_t>(cases, "check_bytes", row);
  m.check_kernels = item<std::string>(cases, "check_kernels", row);
  m.max_abs_err = number("max_abs_err");
  m.max_rel_err = number("max_rel_err");
  return m;
}

void MeasurementTables::keep_cases(std::size_t cases) {
  m_classes.keep_rows(cases);
  for (Table* table : {&m_spaces, &m_devices, &m_regions.table(), &m_kernels.table()})
    drop_rows(*table, "case", cases);
}

void MeasurementTables::add_case(const Measurement& m, const std::string& execution_space) {
  const auto row = static_cast<std::int32_t>(m_classes.rows());
  m_classes.append({{"peak_bytes", std::vector<std::uint64_t>(m.peak.begin(), m.peak.end())}});
  for (const auto& [name, bytes] : m.witnessed)
    m_spaces.append({{"case", row}, {"name", name}, {"peak_bytes", bytes}});
  if (m.on_device && execution_space == "cuda")
    m_devices.append({{"case", row},
                      {"used_bytes", m.on_device->used},
                      {"pool_reserved_bytes", m.on_device->pool_reserved}});
  const auto first_region = static_cast<int>(m_regions.rows());
  for (const auto& region : m.regions) {
    RegionRow entry{region, row};
    if (entry.parent >= 0) entry.parent += first_region;
    m_regions.append(entry);
  }
  for (const auto& kernel : m.profile) m_kernels.append({kernel, row, execution_space});
}

}  // namespace kformer::drivers
