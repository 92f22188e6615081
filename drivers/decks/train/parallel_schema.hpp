// SPDX-License-Identifier: MIT
#pragma once

#include "decks/generate_schema.hpp"
#include "decks/train/train_deck.hpp"

/// \file
/// The keys of [parallel].

namespace kformer::Impl::schema {

template <class V>
void describe(V& v, PlanParallelTable& t) {
  v.key({.name = "data",
         .help = "ranks that share the sequences of a step, one process each: `mpiexec -n 4 kformer-train …`",
         .range = {.min = 1, .max = 1 << 20}},
        t.data);
  v.key({.name = "context",
         .help = "ranks that divide the tokens of each sequence: of 2 × `context` chunks each has two",
         .range = {.min = 1, .max = 1 << 10}},
        t.context);
  v.key(
      {.name = "context_exchange",
       .help = "with `context`, how keys and values reach other ranks: `all_gather`: each gathers all of them; "
               "`ring`: "
               "they go round while ranks compute, so that a rank has those of two (arXiv:2310.01889)"},
      t.context_exchange);
  v.key({.name = "tensor",
         .help = "ranks that divide each model, its heads, the features inside its MLPs and its words "
                 "(arXiv:1909.08053); together `data` × `context` × `tensor` × `pipeline` processes",
         .range = {.min = 1, .max = 1 << 10}},
        t.tensor);
  v.key({.name = "sequence",
         .help = "with `tensor`: these ranks also divide the tokens of states and norms (sequence parallelism, "
                 "arXiv:2205.05198), which saves memory; they must divide the tokens of a micro-batch"},
        t.sequence);
  v.key({.name = "pipeline",
         .help = "ranks that divide the layers of each model, which pass micro-batches on to each other",
         .range = {.min = 1, .max = 1 << 10}},
        t.pipeline);
  v.key({.name = "schedule",
         .help = "in which order the ranks of a pipeline work: `1f1b`; `interleaved`: each has several `parts` "
                 "of the "
                 "model, so that it idles less and sends more (arXiv:2104.04473); `zero_bubble`: gradients of "
                 "weights "
                 "wait until it would idle, which takes memory (ZB-H1, arXiv:2401.10241)"},
        t.schedule);
  v.key({.name = "parts",
         .help = "of the model on each rank of a pipeline, with `schedule = \"interleaved\"`",
         .range = {.min = 1, .max = 1 << 10}},
        t.parts);
  v.key({.name = "zero",
         .help = "stage of ZeRO (arXiv:1910.02054): 1 divides the optimizer's states and master weights among "
                 "the ranks; 2 also the gradients, which are sent after each micro-batch",
         .range = {.min = 0, .max = 2}},
        t.zero);
  v.key({.name = "order",
         .help =
             "`fixed`: sums over micro-batches are made in a binary tree, so that losses and weights have "
             "the same bits for any number of ranks, each with a power of two of micro-batches (with zero = 2, "
             "for a power of two of ranks, each with as many micro-batches); it takes the memory of some more "
             "gradients"},
        t.order);
  v.key(
      {.name = "overlap",
       .help = "whether gradients are sent while backward goes on, in the last micro-batch of a step or, with "
               "zero = 2, in each; results have the same bits"},
      t.overlap);
  v.key({.name = "bucket_mib",
         .help = "with `overlap`, how much is under way at a time; layers with less are sent together",
         .range = {.min = 1, .max = 1 << 20},
         .unit = "MiB"},
        t.bucket_mib);
}

template <class V>
void describe(V& v, ParallelTable& t) {
  describe(v, static_cast<PlanParallelTable&>(t));
  v.key(backend_key(), t.backend);
  v.key(timeout_key(), t.timeout_s);
}

}  // namespace kformer::Impl::schema
