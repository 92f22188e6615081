// SPDX-License-Identifier: MIT
// Which kernel of flash attention takes which options and operands: the table in docs/blocks/attention.md is
// what this test finds, by running each. KFORMER_WRITE_DOCS=1 rewrites the table.
#include <algorithm>
#include <fstream>
#include <set>
#include <sstream>

#include "kformer/ops/impl/launch.hpp"
#include "ops/attention_cases.hpp"

namespace kformer::Testing {

BOOST_AUTO_TEST_SUITE(attention_table)

using Case = AttentionCase;

struct Row {
  const char* name;
  Case c;
};

const Case base{2, 66, 70, 8, 2, 8, 8};
const Case packed_base = Case{1, 0, 0, 8, 2, 8, 8}.packed({40, 0, 26}, {40, 3, 27});

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
    {"head_dim not a multiple of 8", Case{1, 66, 70, 8, 4, 13, 13}.causal()},
    {"head_dim above 256", Case{1, 20, 30, 2, 1, 320, 320}.causal()},
    {"head_dim ≠ v_head_dim", Case{1, 66, 70, 8, 4, 8, 24}.causal()},
};

/// Runs one kernel; the outputs are reset first.
template <class Problem>
void run_kernel(const Kernel<Problem, Exec>& kernel, const Problem& problem,
                const std::vector<Output*>& outputs) {
  const Kokkos::View<std::byte*, Exec::memory_space> workspace("workspace", kernel.workspace_bytes(problem));
  for (Output* output : outputs) output->reset();
  kernel.run(Exec(), problem, workspace);
  Exec().fence("kformer::Testing::attention_table");
}

/// A column of the table: the entries of a kernel list that it covers.
enum class Column { simd, kokkos, reference };
constexpr std::array column_names{"simd", "kokkos", "reference"};

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

template <class S, class C>
bool close(const TestTensor<Exec, S>& out, const HostTensor<Impl::Estimated<C>>& naive) {
  using Real = typename Impl::Estimated<C>::Value;
  return !out.ref().present() || compare<S>(out.template read<Real>(), exact_values(naive), naive).ok;
}

std::vector<Column> columns_here() {
  std::set<Column> found;
  for (const auto& kernel : kernels<Impl::AttentionForward, Exec>()) found.insert(column_of(kernel.name));
  return {found.begin(), found.end()};
}

/// Forward and backward of each column, for one storage type.
template <class T>
std::vector<std::string> answers_of(const Case& c) {
  AttentionTensors<T> t(c);
  const AttentionTensors<T> plain(base);
  const auto columns = columns_here();
  if (const std::string refusal = refusal_of(t.backward_problem()); !refusal.empty())
    return std::vector<std::string>(2 * columns.size(), refusal);
  const auto expected = t.template forward<naive_t<T>, T>();
  t.save(expected);
  const auto gradients = t.template backward<naive_t<T>, T>();
  std::vector<std::string> answers;
  for (const Column column : columns) {
    AttentionTensors<T> forward(c);
    answers.push_back(
        answer_of(column, forward.forward_problem(), plain.forward_problem(), {&forward.out, &forward.lse},
                  [&] { return close(forward.out, expected.out) && close(forward.lse, expected.lse); }));
    answers.push_back(answer_of(column, t.backward_problem(), plain.backward_problem(), t.gradients(), [&] {
      return close(t.dq, gradients.dq) && close(t.dk, gradients.dk) && close(t.dv, gradients.dv) &&
             close(t.dbias, gradients.dbias) && close(t.dsinks, gradients.dsinks);
    }));
  }
  return answers;
}

/// The answers for each storage type; types with the same answer are joined.
std::string of_every_type(const std::vector<std::pair<DType, std::string>>& answers) {
  std::vector<std::pair<std::string, std::string>> said;  // answer, types
  for (const auto& [dtype, answer] : answers) {
    const auto same = std::find_if(said.begin(), said.end(), [&](const auto& s) { return s.first == answer; });
    if (same == said.end())
      said.emplace_back(answer, to_string(dtype));
    else
      same->second += std::string(", ") + to_string(dtype);
  }
  if (said.size() == 1) return said.front().first;
  std::string all;
  for (const auto& [text, types] : said) all += (all.empty() ? "" : "; ") + types + ": " + text;
  return all;
}

std::string found_table() {
  const auto columns = columns_here();
  std::string head = "| options and operands |", rule = "|---|", body, refusals;
  for (const Column column : columns) {
    const std::string name = column_names[static_cast<std::size_t>(column)];
    head += " `" + name + "` forward | `" + name + "` backward |";
    rule += "---|---|";
  }
  for (const Row& row : rows) {
    const auto f32 = answers_of<float>(row.c), b16 = answers_of<bf16>(row.c), f16s = answers_of<f16>(row.c),
               f64 = answers_of<double>(row.c);
    std::vector<std::string> cells;
    for (std::size_t n = 0; n < 2 * columns.size(); ++n)
      cells.push_back(of_every_type(
          {{DType::f32, f32[n]}, {DType::bf16, b16[n]}, {DType::f16, f16s[n]}, {DType::f64, f64[n]}}));
    // A refusal of the public function is the same in every cell: its sentence is written once, below the
    // table.
    const std::string first = cells.front();
    if (first != "works" && std::count(cells.begin(), cells.end(), first) == std::ssize(cells)) {
      refusals += std::string("* ") + row.name + ": " + first + '\n';
      cells.assign(cells.size(), "refused");
    }
    body += std::string("| ") + row.name + " |";
    for (const std::string& cell : cells) body += ' ' + cell + " |";
    body += '\n';
  }
  return head + '\n' + rule + '\n' + body + (refusals.empty() ? "" : "\n" + refusals);
}

const std::string begin_mark = "<!-- generated: ctest -R ops/attention_table -->\n",
                  end_mark = "<!-- end -->\n";

/// The place of the table in the text of the page.
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
