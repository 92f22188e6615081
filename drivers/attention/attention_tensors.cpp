// SPDX-License-Identifier: MIT
#include "attention/attention_tensors.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <limits>

#include "kformer/core/stored_type.hpp"
#include "kformer/io/safetensors.hpp"

namespace kformer::drivers {

namespace {

using Shape = std::vector<std::size_t>;

constexpr std::array known_names{
    "q", "k", "v", "grad_out", "bias", "sinks", "alibi_slopes", "cu_seqlens_q", "cu_seqlens_kv"};
constexpr std::array starts_names{"cu_seqlens_q", "cu_seqlens_kv"};

std::string text_of(const Shape& shape) { return fmt::format("[{}]", fmt::join(shape, ",")); }

// Collects the faults of a file, to report all of them at once.
class TensorChecks {
 public:
  explicit TensorChecks(const SafetensorsFile& in) : m_in(in) {}

  const TensorEntry* find(const char* name) const { return m_in.find(name); }

  void fault(const std::string& text) { m_faults += "\n  " + text; }

  void unknown_names() {
    for (const std::string& name : m_in.names())
      if (std::find(known_names.begin(), known_names.end(), name) == known_names.end())
        fault(fmt::format("{} is not a tensor of attention; known: {}", name, fmt::join(known_names, ", ")));
  }

  // Whether the tensor is there and has four extents, none of them 0.
  bool four_extents(const char* name, const char* expected) {
    const TensorEntry* entry = find(name);
    if (entry == nullptr)
      fault(fmt::format("{} is missing, expected {}", name, expected));
    else if (entry->shape.size() != 4)
      fault(fmt::format("{} has shape {}, expected {}", name, text_of(entry->shape), expected));
    else if (entry->size() == 0)
      fault(fmt::format("{} has shape {}: no extent of {} may be 0", name, text_of(entry->shape), expected));
    else
      return true;
    return false;
  }

  void shape(const char* name, bool good, const std::string& expected) {
    if (!good) fault(fmt::format("{} has shape {}, expected {}", name, text_of(find(name)->shape), expected));
  }

  void throw_if_any(const std::filesystem::path& file) const {
    if (!m_faults.empty())
      throw FileError(
          fmt::format("{}: the tensors are not valid inputs of attention:{}", file.string(), m_faults));
  }

 private:
  const SafetensorsFile& m_in;
  std::string m_faults;
};

bool fits_one_or(std::size_t extent, std::size_t all) { return extent == 1 || extent == all; }

void check_shapes(TensorChecks& checks) {
  const bool q_good = checks.four_extents("q", "[batch,q_len,q_heads,head_dim]");
  const bool k_good = checks.four_extents("k", "[batch,kv_len,kv_heads,head_dim]");
  const bool v_good = checks.four_extents("v", "[batch,kv_len,kv_heads,v_head_dim]");
  if (!q_good || !k_good || !v_good) return;
  const Shape &q = checks.find("q")->shape, &k = checks.find("k")->shape, &v = checks.find("v")->shape;
  checks.shape("k", k[0] == q[0] && k[3] == q[3], fmt::format("[{},kv_len,kv_heads,{}]", q[0], q[3]));
  checks.shape("v", v[0] == k[0] && v[1] == k[1] && v[2] == k[2],
               fmt::format("[{},{},{},v_head_dim]", k[0], k[1], k[2]));
  if (q[2] % k[2] != 0)
    checks.fault(fmt::format("q has {} heads, not a multiple of the {} heads of k", q[2], k[2]));
  for (const char* name : {"k", "v", "grad_out"})
    if (const TensorEntry* entry = checks.find(name); entry && entry->dtype != checks.find("q")->dtype)
      checks.fault(fmt::format("{} is {}, but q is {}", name, entry->dtype, checks.find("q")->dtype));
  if (const TensorEntry* entry = checks.find("grad_out"))
    checks.shape("grad_out", entry->shape == Shape{q[0], q[1], q[2], v[3]}, text_of({q[0], q[1], q[2], v[3]}));
  if (const TensorEntry* entry = checks.find("bias")) {
    const Shape& e = entry->shape;
    checks.shape("bias",
                 e.size() == 4 && fits_one_or(e[0], q[0]) && fits_one_or(e[1], q[2]) &&
                     fits_one_or(e[2], q[1]) && e[3] == k[1],
                 fmt::format("[1 or {},1 or {},1 or {},{}]", q[0], q[2], q[1], k[1]));
  }
  for (const char* name : {"sinks", "alibi_slopes"})
    if (const TensorEntry* entry = checks.find(name))
      checks.shape(name, entry->shape == Shape{q[2]}, text_of({q[2]}));
}

// The integers of an I32 or I64 tensor, each of which must be an int32.
std::vector<double> read_starts(const TensorEntry& entry, const char* name, TensorChecks& checks) {
  std::vector<double> values(entry.size());
  const auto read = [&]<class Integer>(Integer) {
    for (std::size_t i = 0; i < values.size(); ++i) {
      Integer value;
      std::memcpy(&value, entry.bytes.data() + i * sizeof(Integer), sizeof(Integer));
      if (value < 0 || value > std::numeric_limits<std::int32_t>::max()) {
        checks.fault(value < 0 ? fmt::format("{}[{}] = {} is negative", name, i, value)
                               : fmt::format("{}[{}] = {} is out of the range of int32", name, i, value));
        return;
      }
      values[i] = static_cast<double>(value);
    }
  };
  if (entry.dtype == "I32")
    read(std::int32_t());
  else if (entry.dtype == "I64")
    read(std::int64_t());
  else
    checks.fault(fmt::format("{} is {}, expected I32 or I64", name, entry.dtype));
  return values;
}

void read_sequences(TensorChecks& checks, AttentionTensors& tensors) {
  const TensorEntry *q_starts = checks.find("cu_seqlens_q"), *kv_starts = checks.find("cu_seqlens_kv");
  if (q_starts == nullptr && kv_starts == nullptr) return;
  if (q_starts == nullptr || kv_starts == nullptr) {
    checks.fault("cu_seqlens_q and cu_seqlens_kv must be given together; one is missing");
    return;
  }
  if (tensors.shape.batch != 1)
    checks.fault(
        fmt::format("q has a batch of {}, but packed sequences have a batch of 1", tensors.shape.batch));
  if (q_starts->shape.size() != 1 || q_starts->shape != kv_starts->shape || q_starts->size() < 2) {
    checks.fault(
        fmt::format("cu_seqlens_q has shape {} and cu_seqlens_kv {}, expected [sequences + 1] for both",
                    text_of(q_starts->shape), text_of(kv_starts->shape)));
    return;
  }
  for (const char* name : starts_names) {
    const std::int64_t tokens = name == starts_names[0] ? tensors.shape.q_len : tensors.shape.kv_len;
    auto& array = tensors.arrays[name];
    array = {checks.find(name)->shape, read_starts(*checks.find(name), name, checks)};
    if (array.values.front() != 0 || array.values.back() != static_cast<double>(tokens) ||
        !std::is_sorted(array.values.begin(), array.values.end()))
      checks.fault(fmt::format("{} must start at 0, never decrease, and end at {}", name, tokens));
  }
}

// −∞ is no sink; +∞ would leave nothing of any output, and is a fault of whoever wrote it.
void check_sinks(TensorChecks& checks, const std::vector<double>& sinks) {
  for (std::size_t head = 0; head < sinks.size(); ++head)
    if (!(sinks[head] < std::numeric_limits<double>::infinity()))
      checks.fault(fmt::format("sinks[{}] = {}; a sink is finite, or -inf for none", head, sinks[head]));
}

DType dtype_in_file(const std::string& name) {
  const auto dtype = dtype_of_numbers(stored_type_named(name));
  if (dtype && is_float(*dtype)) return *dtype;
  throw FileError("q has the element type " + name + "; expected F32, BF16, F16 or F64");
}

}  // namespace

AttentionTensors read_attention_tensors(const std::filesystem::path& file) {
  const SafetensorsFile in = SafetensorsFile::open(file);
  TensorChecks checks(in);
  checks.unknown_names();
  check_shapes(checks);
  checks.throw_if_any(file);

  AttentionTensors tensors;
  const auto extent = [&](const char* name, std::size_t r) {
    return static_cast<std::int64_t>(in.at(name).shape[r]);
  };
  tensors.shape = {dtype_in_file(in.at("q").dtype),
                   extent("q", 0),
                   extent("q", 1),
                   extent("k", 1),
                   extent("q", 2),
                   extent("k", 2),
                   extent("q", 3),
                   extent("v", 3)};
  read_sequences(checks, tensors);
  if (in.find("sinks") != nullptr) check_sinks(checks, in.read_f64("sinks"));
  checks.throw_if_any(file);
  for (const std::string& name : in.names())
    if (!tensors.arrays.contains(name)) tensors.arrays[name] = {in.at(name).shape, in.read_f64(name)};
  return tensors;
}

}  // namespace kformer::drivers
