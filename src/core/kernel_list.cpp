// SPDX-License-Identifier: MIT
#include "kformer/core/kernel_list.hpp"

#include <cstdio>
#include <cstdlib>
#include <iterator>
#include <map>
#include <mutex>
#include <set>
#include <sstream>
#include <string_view>
#include <utility>
#include <vector>

namespace kformer {

namespace {
thread_local KernelObserver* observer = nullptr;
thread_local const std::string* scoped_choice = nullptr;

bool verbose() {
  const char* value = std::getenv("KFORMER_VERBOSE");
  return value != nullptr && std::string_view(value) != "" && std::string_view(value) != "0";
}

// The kernels of the lists that this program has.
using NamesOfKernels = std::map<std::string, std::set<std::string>>;
struct KnownKernels {
  std::mutex mutex;
  NamesOfKernels of_op, of_function;
};

KnownKernels& known_kernels() {
  static KnownKernels known;
  return known;
}

// The ops of the library with their functions. A program may have only some of them: the choice for another
// program is no error.
constexpr const char* library_names =
    "adamw gradient_norm attention attention_forward attention_backward cross_entropy "
    "cross_entropy_forward cross_entropy_backward embedding embedding_forward embedding_backward "
    "kv_cache kv_append kv_gather kv_copy kv_compact kv_attention_mass kv_heavy_hitters kv_mask "
    "kv_append_int8 kv_gather_int8 linear linear_forward linear_backward_input "
    "linear_backward_weight linear_backward_bias linear_rope linear_rope_forward linear_swiglu "
    "linear_swiglu_forward lora lora_forward lora_backward_input quantized dequantize quantize "
    "quantized_linear_forward quantized_linear_backward_input quantized_embedding_forward rms_norm "
    "rms_norm_forward qk_norm_forward rms_norm_backward rope rope_tables "
    "rope_forward rope_backward sampling sample token_log_probabilities standard_attention "
    "standard_attention_forward standard_attention_backward swiglu swiglu_forward swiglu_backward "
    "ternary ternary_quantize ternary_activations";

std::string_view forced_choice() {
  if (scoped_choice) return *scoped_choice;
  const char* value = std::getenv("KFORMER_KERNEL");
  return value ? value : "";
}

template <class Names>
std::string joined(const Names& names) {
  std::string text;
  for (const auto& name : names) text += (text.empty() ? "" : ", ") + std::string(name);
  return text;
}

std::set<std::string> names_of(const KnownKernels& known) {
  std::istringstream words(library_names);
  std::set<std::string> names{std::istream_iterator<std::string>(words), {}};
  for (const auto& [op, kernels] : known.of_op) names.insert(op);
  for (const auto& [function, kernels] : known.of_function) names.insert(function);
  return names;
}

// "target:kernel", where both exist as far as this program can know.
std::pair<std::string, std::string> checked_item(std::string_view item, const KnownKernels& known) {
  const auto colon = item.find(':');
  if (colon == item.npos || colon + 1 == item.size())
    throw NotSupported("kformer: KFORMER_KERNEL must have the form OP:KERNEL[,OP:KERNEL...], got \"" +
                       std::string(item) + '"');
  const std::string target(item.substr(0, colon)), kernel(item.substr(colon + 1));
  const auto function = known.of_function.find(target), op = known.of_op.find(target);
  if (function == known.of_function.end() && op == known.of_op.end()) {
    if (names_of(known).contains(target)) return {target, kernel};
    throw NotSupported("kformer: KFORMER_KERNEL names '" + target +
                       "', which is not an op; ops and functions: " + joined(names_of(known)));
  }
  const auto& names = op != known.of_op.end() ? op->second : function->second;
  if (!names.contains(kernel))
    throw NotSupported("kformer: KFORMER_KERNEL asks for '" + kernel + "' of '" + target +
                       "', whose kernels are: " + joined(names));
  return {target, kernel};
}

std::vector<std::pair<std::string, std::string>> checked_items(const KnownKernels& known) {
  std::vector<std::pair<std::string, std::string>> items;
  for (std::string_view rest = forced_choice(); !rest.empty();) {
    const auto comma = rest.find(',');
    items.push_back(checked_item(rest.substr(0, comma), known));
    rest = comma == rest.npos ? "" : rest.substr(comma + 1);
  }
  return items;
}
}  // namespace

KernelObserver* set_kernel_observer(KernelObserver* next) { return std::exchange(observer, next); }

ForcedKernels::ForcedKernels(std::string choice)
    : m_choice(std::move(choice)), m_previous(std::exchange(scoped_choice, &m_choice)) {}

ForcedKernels::~ForcedKernels() { scoped_choice = m_previous; }

namespace Impl {

bool kernels_are_forced() { return !forced_choice().empty(); }

void make_known(const char* op, const char* function, const char* kernel) {
  KnownKernels& known = known_kernels();
  const std::lock_guard lock(known.mutex);
  known.of_function[function].insert(kernel);
  known.of_op[op].insert(kernel);
}

void check_forced_kernels() {
  KnownKernels& known = known_kernels();
  const std::lock_guard lock(known.mutex);
  checked_items(known);
}

std::string forced_kernel(const char* op, const char* function) {
  KnownKernels& known = known_kernels();
  const std::lock_guard lock(known.mutex);
  std::string by_op, by_function;
  for (const auto& [target, kernel] : checked_items(known)) {
    if (target == function && by_function.empty()) by_function = kernel;
    if (target == op) by_op = kernel;
  }
  if (!by_function.empty()) return by_function;
  return known.of_function[function].contains(by_op) ? by_op : std::string();
}

void report_choice(const char* op, const char* function, const char* kernel) {
  if (observer) observer->chosen(op, function, kernel);
  if (verbose()) std::fprintf(stderr, "kformer::%s: %s runs\n", function, kernel);
}

void report_refusal(const char* function, const char* kernel, const std::string& reason) {
  if (verbose()) std::fprintf(stderr, "kformer::%s: %s refuses: %s\n", function, kernel, reason.c_str());
}

void throw_no_kernel(const char* function, const std::string& forced, const std::string& reasons) {
  std::string text = "kformer::";
  text += function;
  if (forced.empty())
    text += ": no kernel can do this: " + reasons;
  else if (reasons.empty())
    text += ": KFORMER_KERNEL asks for '" + forced + "', which this execution space does not have";
  else
    text += ": KFORMER_KERNEL asks for a kernel that refuses: " + reasons;
  throw NotSupported(text);
}

}  // namespace Impl
}  // namespace kformer
