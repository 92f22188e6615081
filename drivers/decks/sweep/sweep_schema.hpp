// SPDX-License-Identifier: MIT
#pragma once

#include "decks/engine/common_tables.hpp"
#include "decks/sweep/sweep.hpp"

/// \file
/// What the tables of all kinds that sweep over cases have in common. The axes of a kind are listed by its
/// `for_each_axis(f, points...)`, which calls `f(Key, values...)`.

namespace kformer::Impl::schema {

/// The largest extent a deck may ask for.
constexpr double longest_axis_value = 1 << 24;

inline Key execution_space_axis() {
  return {.name = "execution_space",
          .help = "where the case runs: `\"all\"` is every space of the build, `\"default\"` its default space",
          .choices = {"all", "default", "serial", "openmp", "threads", "cuda", "hip", "sycl"}};
}

inline Key batch_axis() {
  return {.name = "batch",
          .help = "sequences",
          .range = {.min = 1, .max = longest_axis_value},
          .default_text = "1, or from [tensors]"};
}

inline Key compute_key() {
  return {.name = "compute",
          .help =
              "the weights of flash attention, which are never stored: `storage` lets kernels round them to "
              "the storage type, `full` keeps them in f32 (f64 for f64)"};
}

/// A table with the members mode, axes and exclude.
template <class V, class SweepTable>
void describe_sweep(V& v, SweepTable& t) {
  v.key(
      {.name = "mode",
       .help = "`product`: every combination of values, the first axis varying slowest; `zip`: the n-th values "
               "together (axes with one value repeat it)"},
      t.mode);
  describe(v, t.axes);
  v.list({.name = "exclude",
          .help = "Cases to leave out: those with one of the given values on every named axis.",
          .of_axes = true},
         t.exclude);
}

template <class V>
void describe(V& v, CheckTable& t) {
  v.key({.name = "reference", .help = "compare with double precision, or not at all"}, t.reference);
  v.key({.name = "fail",
         .help = "judge the errors: exit code 5 if one breaks the tolerance rule; `false` only records them, "
                 "and the status is `unchecked`"},
        t.fail);
  v.key({.name = "max_seq_len",
         .help = "do not compare longer cases; their status is `unchecked`",
         .range = {.min = 0, .max = 1 << 24},
         .unit = "tokens"},
        t.max_seq_len);
}

/// The tables of a deck that say how to run it.
template <class V, class Deck>
void describe_run_tables(V& v, Deck& d) {
  v.table({.name = "run", .help = "General settings."}, d.run);
  v.table({.name = "timing", .help = "How to time a case."}, d.timing);
  v.table({.name = "profile", .help = "What to measure besides time."}, d.profile);
  v.table({.name = "output", .help = "The result file."}, d.output);
}

/// The tables of a deck that say which cases there are, and how they are judged.
template <class V, class Deck>
void describe_sweep_tables(V& v, Deck& d) {
  v.table({.name = "sweep", .help = "The cases. Each axis takes one value or an array of different values."},
          d.sweep);
  v.table({.name = "check", .help = "Correctness checks in the same run."}, d.check);
}

}  // namespace kformer::Impl::schema
