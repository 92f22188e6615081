// SPDX-License-Identifier: MIT
#pragma once

#include <string>

#include "decks/engine/deck.hpp"
#include "io/schema/key.hpp"

/// \file
/// The tables that every kind of deck has.

namespace kformer::Impl::schema {

/// Keys before the first table.
struct DeckHeader {
  std::int64_t schema = 1;
  std::string kind;
  std::filesystem::path include{};
};

/// \param kinds the kinds this program reads
template <class V>
void describe_header(V& v, DeckHeader& h, const std::vector<std::string_view>& kinds) {
  v.key(
      {.name = "schema", .help = "version of the deck format", .range = {.min = 1, .max = 1}, .required = true},
      h.schema);
  v.key({.name = "kind", .help = "kind of run", .choices = kinds, .required = true}, h.kind);
  v.key({.name = "include",
         .help = "base deck, read first; keys here override it, arrays as a whole",
         .default_text = "none",
         .consumed = true},
        h.include);
}

inline Key run_name_key() {
  return {.name = "name",
          .help = "name of the run and `{name}` in the output file",
          .default_text = "file name of the deck without `.toml`"};
}

inline Key run_threads_key() {
  return {.name = "threads", .help = "host threads, 0 = Kokkos default", .range = {.min = 0, .max = 512}};
}

inline Key run_walltime_key() {
  return {.name = "walltime_s",
          .help = "stop after the case during which this time runs out, 0 = never",
          .range = {.min = 0},
          .unit = "s"};
}

template <class V>
void describe(V& v, RunTable& t) {
  v.key(run_name_key(), t.name);
  v.key({.name = "seed", .help = "seed of all random numbers", .range = {.min = 0}}, t.seed);
  v.key(run_threads_key(), t.threads);
  v.key({.name = "on_oom", .help = "a case that runs out of memory: record it and continue, or abort the run"},
        t.on_oom);
  v.key(run_walltime_key(), t.walltime_s);
}

template <class V>
void describe(V& v, TimingTable& t) {
  v.key({.name = "warmup", .help = "untimed calls before the first sample", .range = {.min = 0, .max = 100000}},
        t.warmup);
  v.key({.name = "repeats",
         .help = "samples per case; every sample is stored",
         .range = {.min = 1, .max = 100000}},
        t.repeats);
  v.key({.name = "min_time_s",
         .help = "a sample repeats calls for this long, 0 = one call",
         .range = {.min = 0, .max = 3600},
         .unit = "s"},
        t.min_time_s);
  v.key({.name = "max_time_s",
         .help = "stop sampling a case after this time, but not before its first sample; 0 = never",
         .range = {.min = 0},
         .unit = "s"},
        t.max_time_s);
}

template <class V>
void describe(V& v, ProfileTable& t) {
  v.key({.name = "kernels", .help = "time every kernel and region in a second pass, with a fence around each"},
        t.kernels);
  v.key({.name = "memory",
         .help = "`peak`: also record what allocation callbacks of Kokkos report, and what a GPU has in use; "
                 "`off`: the ledger alone"},
        t.memory);
  v.key({.name = "machine_limits",
         .help = "measure the machine's limits before the first case, which takes a few seconds; `false` skips "
                 "this: shares "
                 "of limits remain, as each case samples its own"},
        t.machine_limits);
}

template <class V>
void describe(V& v, OutputTable& t) {
  v.key({.name = "file",
         .help = "HDF5 result file, relative to the working directory; `{name}`, `{kind}`, `{date}` and "
                 "`{jobid}` are "
                 "replaced"},
        t.file);
  v.key({.name = "overwrite", .help = "replace an existing file; otherwise the run refuses to start"},
        t.overwrite);
  v.key({.name = "compression", .help = "deflate level, 0 = none", .range = {.min = 0, .max = 9}},
        t.compression);
}

}  // namespace kformer::Impl::schema
