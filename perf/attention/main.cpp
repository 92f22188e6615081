// SPDX-License-Identifier: MIT
// kformer-perf-attention: attention timed with cold caches, beside what the machine could do at best.
#include "attention/attention_run.hpp"
#include "program.hpp"

namespace {

using namespace kformer::perf;

std::vector<Case> measured(const std::vector<AttentionCase>& all) {
  std::vector<Case> cases;
  for (const AttentionCase& one : all) cases.push_back(measured(one));
  return cases;
}

}  // namespace

int main(int argc, char** argv) {
  return run_program(
      "kformer-perf-attention", argc, argv, [] { return measured(attention_cases()); },
      [] { return measured(attention_smoke_cases()); });
}
