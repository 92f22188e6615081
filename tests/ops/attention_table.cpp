// SPDX-License-Identifier: MIT
// Which kernel of flash attention takes which options and operands: the table in docs/blocks/attention.md is
// what this test finds, by running each. KFORMER_WRITE_DOCS=1 rewrites the table.
#include <fstream>
#include <map>
#include <set>
#include <sstream>

#include "ops/attention_cases.hpp"

namespace kformer::Testing {

BOOST_AUTO_TEST_SUITE(attention_table)

using Case = AttentionCase;

struct Row {
  const char* name;
  Case c;
};

const Case base{1, 75, 113, 16, 4, 16, 16};
const Case packed_base = base.packed({40, 0, 35}, {70, 3, 40});

const std::vector<Row> rows{
    {"no option", base},
    {"`causal`", base.causal()},
    {"`window`", base.window(30)},
    {"`causal`, `window`", base.causal().window(30)},
    {"`softcap`", base.softcap(2)},
    {"`alibi_slopes`", base.alibi()},
    {"`sinks` with gradient", base.sinks()},
    {"`bias`", base.constant_bias(Bias::full)},
    {"`bias` with gradient", base.bias(Bias::full)},
    {"`bias` for all heads, with gradient", base.bias(Bias::queries_and_keys)},
    {"`bias` for all queries, with gradient", base.bias(Bias::keys_per_batch)},
    {"`block_mask`", base.blocks(64, 64)},
    {"`block_mask` of small blocks", base.blocks(16, 8)},
    {"`sequences`", packed_base},
    {"`sequences`, `causal`, `window`", packed_base.causal().window(30)},
    {"`sequences`, `softcap`, `alibi_slopes`, `sinks`", packed_base.causal().softcap(2).alibi().sinks()},
    {"`sequences`, `bias`", packed_base.constant_bias(Bias::full)},
    {"`sequences`, `block_mask`", packed_base.blocks(64, 64)},
    {"`causal`, `window`, `softcap`, `alibi_slopes`, `sinks`",
     base.causal().window(30).softcap(2).alibi().sinks()},
    {"all of these, `block_mask`, `bias` with gradient",
     base.causal().window(30).softcap(2).alibi().sinks().blocks(64, 64).bias(Bias::full)},
    {"head_dim not a multiple of 8", Case{1, 75, 113, 16, 4, 13, 13}.causal()},
    {"head_dim above 256", Case{1, 75, 113, 2, 1, 320, 320}.causal()},
    {"head_dim ≠ v_head_dim", Case{1, 75, 113, 16, 4, 16, 24}.causal()},
};

/// What `run` says of each storage type, those that say the same together.
template <class F>
std::string of_every_type(F run) {
  std::vector<std::pair<std::string, std::string>> said;  // answer, types
  const auto ask = [&]<class T>(std::type_identity<T> type) {
    const std::string answer = run(type), name = to_string(dtype_of<T>);
    for (auto& [text, types] : said)
      if (text == answer) {
        types += ", " + name;
        return;
      }
    said.emplace_back(answer, name);
  };
  ask(std::type_identity<float>{});
  ask(std::type_identity<bf16>{});
  ask(std::type_identity<f16>{});
  ask(std::type_identity<double>{});
  if (said.size() == 1) return said.front().first;
  std::string all;
  for (const auto& [text, types] : said) all += (all.empty() ? "" : "; ") + types + ": " + text;
  return all;
}

/// Runs one kernel; the outputs are reset first.
template <class Problem>
void run_kernel(const Kernel<Problem, Exec>& kernel, const Problem& problem,
                const std::vector<Output*>& outputs) {
  const Kokkos::View<std::byte*, Exec::memory_space> workspace("workspace", kernel.workspace_bytes(problem));
  for (Output* output : outputs) output->reset();
  kernel.run(Exec(), problem, workspace);
  Exec().fence("kformer::Testing::attention_table");
}

/// A column of the table: the entries of a kernel list that it stands for.
enum class Column { kokkos, simd, reference };
constexpr std::array column_names{"kokkos", "simd", "reference"};

Column column_of(const std::string& kernel) {
  return kernel == "kokkos" ? Column::kokkos : kernel.starts_with("simd") ? Column::simd : Column::reference;
}

/// "works" if every entry of a column that this machine and shape can use does, else the refusals.
template <class Problem, class Works>
std::string answer_of(Column column, const Problem& problem, const Problem& plain,
                      const std::vector<Output*>& outputs, Works works) {
  std::set<std::string> answers;
  for (const auto& kernel : kernels<Problem, Exec>()) {
    if (column_of(kernel.name) != column || !kernel.reject(plain).empty()) continue;
    const std::string refusal = kernel.reject(problem);
    if (!refusal.empty()) {
      answers.insert(refusal);
      continue;
    }
    run_kernel(kernel, problem, outputs);
    answers.insert(works() ? "works" : std::string(kernel.name) + " is wrong");
  }
  std::string all;
  for (const std::string& answer : answers) all += (all.empty() ? "" : "; ") + answer;
  return all;
}

/// The sentence with which the public function refuses, or an empty string.
template <class Problem>
std::string refusal_of(const Problem& problem) {
  try {
    problem.check();
  } catch (const NotSupported& error) {
    const std::string text = error.what();
    return text.substr(text.find(": ") + 2);
  }
  return {};
}

template <class S, class Real, class Naive>
bool close(const TestTensor<Exec, S>& out, const HostTensor<Real>& reference, const HostTensor<Naive>& naive) {
  return !out.ref().present() || compare<S>(out.template read<Real>(), reference, naive).ok;
}

template <class T>
std::string forward_answer(Column column, const Case& c) {
  AttentionTensors<T> t(c);
  const AttentionTensors<T> plain(base);
  if (const std::string refusal = refusal_of(t.forward_problem()); !refusal.empty()) return refusal;
  const auto expected = t.template forward<oracle_t<T>, oracle_t<T>>();
  const auto naive = t.template forward<compute_t<T>, T>();
  return answer_of(column, t.forward_problem(), plain.forward_problem(), {&t.out, &t.lse}, [&] {
    return close(t.out, expected.out, naive.out) && close(t.lse, expected.lse, naive.lse);
  });
}

template <class T>
std::string backward_answer(Column column, const Case& c) {
  AttentionTensors<T> t(c);
  const AttentionTensors<T> plain(base);
  if (const std::string refusal = refusal_of(t.backward_problem()); !refusal.empty()) return refusal;
  t.save(t.template forward<oracle_t<T>, oracle_t<T>>());
  const auto expected = t.template backward<oracle_t<T>, oracle_t<T>>();
  const auto naive = t.template backward<compute_t<T>, T>();
  return answer_of(column, t.backward_problem(), plain.backward_problem(), t.gradients(), [&] {
    return close(t.dq, expected.dq, naive.dq) && close(t.dk, expected.dk, naive.dk) &&
           close(t.dv, expected.dv, naive.dv) && close(t.dbias, expected.dbias, naive.dbias) &&
           close(t.dsinks, expected.dsinks, naive.dsinks);
  });
}

std::string found_table() {
  std::vector<Column> columns;
  for (const Column column : {Column::simd, Column::kokkos, Column::reference})
    for (const auto& kernel : kernels<Impl::AttentionForward, Exec>())
      if (column_of(kernel.name) == column && (columns.empty() || columns.back() != column))
        columns.push_back(column);
  std::ostringstream table;
  table << "| options and operands |";
  for (const Column column : columns) {
    const char* name = column_names[static_cast<std::size_t>(column)];
    table << " `" << name << "` forward | `" << name << "` backward |";
  }
  table << "\n|---|" << [&] {
    std::string rule;
    for (std::size_t n = 0; n < columns.size(); ++n) rule += "---|---|";
    return rule;
  }() << '\n';
  for (const Row& row : rows) {
    table << "| " << row.name << " |";
    for (const Column column : columns) {
      const auto forward = [&]<class T>(std::type_identity<T>) { return forward_answer<T>(column, row.c); };
      const auto backward = [&]<class T>(std::type_identity<T>) { return backward_answer<T>(column, row.c); };
      table << ' ' << of_every_type(forward) << " | " << of_every_type(backward) << " |";
    }
    table << '\n';
  }
  return table.str();
}

const std::string begin_mark = "<!-- generated: ctest -R ops/attention_table -->\n",
                  end_mark = "<!-- end -->\n";

/// Where the table stands in the text of the page.
std::pair<std::size_t, std::size_t> place_of_table(const std::string& page) {
  const std::size_t begin = page.find(begin_mark), end = page.find(end_mark);
  BOOST_TEST_REQUIRE((begin != std::string::npos && end != std::string::npos),
                     "the page has no place for the table");
  return {begin + begin_mark.size(), end};
}

BOOST_AUTO_TEST_CASE(the_page_has_the_table_that_the_kernels_give) {
  if (!Impl::is_host_space<Exec>) return;  // devices have other kernels; the table is of the host
  const char* docs = std::getenv("KFORMER_DOCS");
  BOOST_TEST_REQUIRE(docs != nullptr, "KFORMER_DOCS must name the folder docs of the sources; ctest sets it");
  const std::string path = std::string(docs) + "/blocks/attention.md";
  std::stringstream content;
  content << std::ifstream(path).rdbuf();
  std::string page = content.str();
  const auto [begin, end] = place_of_table(page);
  const std::string table = found_table();
  BOOST_TEST(table.find(" is wrong") == std::string::npos, table);
  if (std::getenv("KFORMER_WRITE_DOCS") != nullptr) {
    page.replace(begin, end - begin, table);
    std::ofstream(path) << page;
    return;
  }
  BOOST_TEST(page.substr(begin, end - begin) == table,
             path << " has another table; KFORMER_WRITE_DOCS=1 ctest -R ops/attention_table writes this one:\n"
                  << table);
}

BOOST_AUTO_TEST_SUITE_END()
}  // namespace kformer::Testing
