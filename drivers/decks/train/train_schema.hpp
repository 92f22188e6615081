// SPDX-License-Identifier: MIT
#pragma once

#include "decks/generate_schema.hpp"
#include "decks/language_model_schema.hpp"
#include "decks/layer_schema.hpp"
#include "decks/train/train_deck.hpp"

/// \file
/// The tables of kind "train".

namespace kformer::Impl::schema {

/// The greatest number of steps, sequences or examples that a deck may name.
constexpr double most_steps = 1e12;

template <class V>
void describe(V& v, TrainRunTable& t) {
  describe(v, static_cast<RunTable&>(t));
  v.key({.name = "execution_space",
         .help = "where to run; `\"default\"` is the default space of the build",
         .choices = {"default", "serial", "openmp", "threads", "cuda", "hip", "sycl"}},
        t.execution_space);
}

template <class V>
void describe(V& v, TrainProfileTable& t) {
  v.key(
      {.name = "kernels",
       .help =
           "time every kernel and region of the second step of the run (of its only one), with a fence around "
           "each"},
      t.kernels);
  v.key({.name = "machine_limits",
         .help = "measure before the first step what the machine can do; `false` saves its seconds, and no "
                 "share of the limit is shown"},
        t.machine_limits);
}

template <class V>
void describe(V& v, TrainOutputTable& t) {
  describe(v, static_cast<OutputTable&>(t));
  v.key({.name = "model",
         .help =
             "folder for the trained model in the published layout, relative to the working directory; it is "
             "absent or empty, unless `overwrite` or a checkpoint to resume from allows to replace its model; "
             "other files in it stay",
         .default_text = "none: the model is not saved"},
        t.model);
}

template <class V>
void describe(V& v, InitTable& t) {
  v.key({.name = "scheme",
         .help = "`normal`: matrices have mean 0 and deviation `std`; `scaled`: the same, but `o_proj` and "
                 "`down_proj` are divided by √(2 · layers); norms start as 1, biases as 0"},
        t.scheme);
  v.key({.name = "std", .help = "standard deviation of matrices", .range = {.min = 0}}, t.std);
  v.key({.name = "seed", .help = "seed of the weights", .range = {.min = 0}, .default_text = "`run.seed`"},
        t.seed);
}

template <class V>
void describe(V& v, DataTable& t) {
  v.key({.name = "format",
         .help = "`text`: a file is a document; `tokens`: token ids in `.npy` or HDF5 files; `chat`: "
                 "conversations, one JSON object a line; `synthetic`: no files, tasks are generated"},
        t.format);
  v.key({.name = "train",
         .help = "files to learn from, relative to the deck",
         .default_text = "required, unless synthetic",
         .repeatable = true},
        t.train);
  v.key({.name = "validation",
         .help = "files of [evaluation], relative to the deck; synthetic data need none",
         .default_text = "none",
         .repeatable = true},
        t.validation);
  v.key({.name = "chat_style",
         .help = "how conversations of `chat` are written",
         .default_text = "as the chat template of the tokenizer says"},
        t.chat_style);
  v.key({.name = "packing",
         .help = "how documents fill sequences: `stream`: one after another, cut where a sequence is full; "
                 "`best_fit`: several whole ones in a sequence, separated in attention; `pad`: one in each"},
        t.packing);
  v.key({.name = "shuffle",
         .help = "take the sequences of each epoch in another order, a function of seed and epoch"},
        t.shuffle);
  v.key({.name = "cache",
         .help = "folder that keeps the tokens of files for later runs, relative to the working directory; "
                 "`\"\"`: none",
         .default_text = "`$XDG_CACHE_HOME/kformer` or `~/.cache/kformer`"},
        t.cache);
  v.key({.name = "task",
         .help = "synthetic task: copy, reverse or sort a string, or add two numbers",
         .default_text = "`\"copy\"`"},
        t.task);
  v.key({.name = "length",
         .help = "letters of the longest text of a synthetic task, or digits of a number (at most 18)",
         .range = {.min = 1, .max = 1 << 20},
         .default_text = "8"},
        t.length);
  v.key({.name = "examples",
         .help = "synthetic tasks in an epoch",
         .range = {.min = 1, .max = most_steps},
         .default_text = "10000"},
        t.examples);
}

template <class V>
void describe(V& v, BatchTable& t) {
  v.key({.name = "seq_len",
         .help = "tokens of a sequence",
         .range = {.min = 1, .max = longest_axis_value},
         .unit = "tokens",
         .required = true},
        t.seq_len);
  v.key({.name = "micro_batch",
         .help = "sequences of one forward and backward; memory grows with it, results do not depend on it but "
                 "for rounding",
         .range = {.min = 1, .max = longest_axis_value}},
        t.micro_batch);
  v.key({.name = "sequences",
         .help = "sequences of a step, over all ranks; gradients of its micro-batches are accumulated",
         .range = {.min = 1, .max = longest_axis_value},
         .default_text = "`micro_batch`"},
        t.sequences);
}

template <class V>
void describe(V& v, TrainPrecisionTable& t) {
  v.key(
      {.name = "storage", .help = "type of weights and activations", .choices = {"f32", "bf16", "f16", "f64"}},
      t.storage);
  v.key(compute_key(), t.compute);
  v.key({.name = "loss_scale",
         .help = "factor on the loss before backward: none, one that stays, or one that follows the gradients",
         .default_text = "`dynamic` for `f16`, otherwise `none`"},
        t.loss_scaling);
  describe_loss_scale(v, t);
}

/// The keys of [optimizer] that change memory.
template <class V, class Table>
void describe_optimizer_storage(V& v, Table& t) {
  v.key({.name = "states",
         .help = "storage of the two running means: as gradients, or 8 bits per number and a scale per 256 "
                 "numbers (not for f64)"},
        t.states);
  v.key({.name = "master", .help = "type of the weights that are updated, if those of the model have 16 bits"},
        t.master);
}

template <class V>
void describe(V& v, TrainOptimizerTable& t) {
  v.key({.name = "lr", .help = "learning rate, the largest of the schedule", .range = {.min = 0}}, t.lr);
  v.key({.name = "betas",
         .help = "decay of the running means of the gradient and of its square; two numbers less than 1",
         .range = {.min = 0, .max = 1},
         .repeatable = true},
        t.betas);
  v.key({.name = "eps", .help = "added to the root of the running mean square", .range = {.min = 1.2e-38}},
        t.eps);
  v.key({.name = "weight_decay",
         .help = "weight decay of matrices, the embedding too; norms and biases do not decay",
         .range = {.min = 0}},
        t.weight_decay);
  v.key({.name = "max_norm",
         .help = "clip the gradients of all parameters to this global norm: they are multiplied by "
                 "min(1, max_norm / norm), 0 = never",
         .range = {.min = 0}},
        t.max_norm);
  describe_optimizer_storage(v, t);
}

template <class V>
void describe(V& v, ScheduleTable& t) {
  v.key(
      {.name = "kind",
       .help = "course of the learning rate after the warm-up: it stays, falls on a line or half a cosine wave "
               "to `min_lr`, or (`wsd`) stays and falls on a line in the last `decay_steps`"},
      t.kind);
  v.key({.name = "steps",
         .help = "steps of the training",
         .range = {.min = 1, .max = most_steps},
         .default_text = "give `steps` or `epochs`"},
        t.steps);
  v.key({.name = "epochs",
         .help = "passes over the training data; a last step that would be smaller is left out",
         .range = {.min = 1, .max = most_steps},
         .default_text = "see `steps`"},
        t.epochs);
  v.key({.name = "warmup_steps",
         .help = "first steps: step t = 0, 1, ... has the rate lr·(t+1)/warmup_steps",
         .range = {.min = 0, .max = most_steps},
         .unit = "steps"},
        t.warmup_steps);
  v.key({.name = "min_lr", .help = "learning rate at the end", .range = {.min = 0}}, t.min_lr);
  v.key({.name = "decay_steps",
         .help = "for `wsd`: the last steps, in which the rate falls",
         .range = {.min = 1, .max = most_steps},
         .unit = "steps",
         .default_text = "a fifth of the steps"},
        t.decay_steps);
}

template <class V>
void describe(V& v, MemoryTable& t) {
  v.key(
      {.name = "recompute",
       .help = "what layers keep between forward and backward: everything (`none`), all but what one pass over "
               "memory restores (`pointwise`), their input (`layer`), the inputs of some (`nested`), their "
               "input in host memory (`offload`), or the fastest mixture that fits (`auto`); results have the "
               "same bits"},
      t.recompute);
  v.key({.name = "budget",
         .help = "most memory that the run may take, a text such as `\"8GiB\"`, `\"500MB\"` or `\"1000000\"` "
                 "(bytes); on a device, of its memory; a run that needs more is refused before it starts",
         .default_text = "what is free"},
        t.budget);
}

template <class V>
void describe(V& v, CheckpointTable& t) {
  v.key({.name = "folder", .help = "where they go, relative to the working directory", .required = true},
        t.folder);
  v.key({.name = "every_steps",
         .help = "steps from one to the next, 0 = only at the end; a run that is stopped saves one, too",
         .range = {.min = 0, .max = most_steps},
         .unit = "steps"},
        t.every_steps);
  v.key({.name = "keep", .help = "how many of the newest stay", .range = {.min = 1, .max = most_steps}},
        t.keep);
  v.key({.name = "background",
         .help =
             "write them while the training goes on, from a copy in memory of the host; `false` needs no copy, "
             "and the training waits"},
        t.background);
  v.key({.name = "resume",
         .help = "continue from the newest good checkpoint in the folder, or start if there is none; with a "
                 "checkpoint, "
                 "the files of [output] that the earlier run left are replaced"},
        t.resume);
}

template <class V>
void describe(V& v, EvaluationTable& t) {
  v.key({.name = "every_steps",
         .help = "steps from one to the next, 0 = only at the end",
         .range = {.min = 0, .max = most_steps},
         .unit = "steps"},
        t.every_steps);
  v.key({.name = "sequences",
         .help = "how many of the first sequences of the validation data count, 0 = all",
         .range = {.min = 0, .max = most_steps}},
        t.sequences);
}

template <class V>
void describe(V& v, SamplesTable& t) {
  v.key({.name = "every_steps",
         .help = "steps from one set of texts to the next, 0 = only at the end",
         .range = {.min = 0, .max = most_steps},
         .unit = "steps"},
        t.every_steps);
  v.key({.name = "prompts",
         .help =
             "beginnings of texts that the model continues; an empty one is the beginning-of-text token alone",
         .default_text = "one empty prompt",
         .repeatable = true},
        t.prompts);
  v.key({.name = "max_new_tokens",
         .help = "tokens that continue a prompt; prompt and text end at `batch.seq_len`",
         .range = {.min = 1, .max = longest_axis_value},
         .unit = "tokens"},
        t.max_new_tokens);
  v.key({.name = "temperature",
         .help = "logits are divided by this; 0 takes the most likely token",
         .range = {.min = 0}},
        t.temperature);
}

template <class V>
void describe(V& v, SpikesTable& t) {
  v.key({.name = "window",
         .help = "earlier steps that a step is compared with; before there are so many, none is skipped",
         .range = {.min = 2, .max = 1 << 20},
         .unit = "steps"},
        t.window);
  v.key({.name = "loss_z",
         .help = "skip a step whose loss is this many standard deviations above the mean, 0 = never",
         .range = {.min = 0}},
        t.loss_z);
  v.key({.name = "norm_z",
         .help = "skip a step whose gradient norm is this many standard deviations above the mean, 0 = never",
         .range = {.min = 0}},
        t.norm_z);
}

template <class V>
void describe(V& v, EarlyStopTable& t) {
  v.key({.name = "patience",
         .help = "end the training after this many evaluations in a row without a better loss",
         .range = {.min = 1, .max = most_steps}},
        t.patience);
  v.key({.name = "min_improvement", .help = "a better loss is less by more than this", .range = {.min = 0}},
        t.min_improvement);
}

constexpr std::string_view train_kind = "train";

template <class V>
void describe(V& v, TrainDeck& d) {
  DeckHeader header{.kind = std::string(train_kind)};
  describe_header(v, header, {train_kind});
  v.table(
      {.name = "run", .help = "General settings. A training that runs out of memory ends, whatever `on_oom`."},
      d.run);
  v.table({.name = "profile", .help = "What to measure besides time."}, d.profile);
  v.table({.name = "output", .help = "The result file and the trained model."}, d.output);
  v.table({.name = "weights",
           .help = "A checkpoint to start from; quantised weights are expanded. Alternative to [model]."},
          d.weights);
  v.table({.name = "model",
           .help = "The model; keys as in published config.json files. `max_position_embeddings` is "
                   "`batch.seq_len` unless it is set. Alternative to [weights]."},
          d.model);
  v.table({.name = "init", .help = "The first weights, with [model]."}, d.init);
  v.table({.name = "tokenizer", .help = "The tokenizer of `text` and `chat` data and of [samples]."},
          d.tokenizer);
  v.table({.name = "data", .help = "The data set."}, d.data);
  v.table({.name = "batch", .help = "The tokens of a step."}, d.batch);
  v.table({.name = "precision", .help = "Types of numbers."}, d.precision);
  v.table({.name = "optimizer", .help = "AdamW."}, d.optimizer);
  v.table({.name = "schedule", .help = "Length of the training and learning rate."}, d.schedule);
  v.table({.name = "memory", .help = "Memory and what is computed again to save it."}, d.memory);
  v.table({.name = "checkpoint", .help = "Optional: files from which a run can continue with the same bits."},
          d.checkpoint);
  v.table({.name = "evaluation", .help = "Optional: the loss on data that is not learned."}, d.evaluation);
  v.table({.name = "samples", .help = "Optional: texts that the model writes on the way."}, d.samples);
  v.table({.name = "spikes",
           .help = "Optional: skip steps whose loss or gradient norm stands out from those before."},
          d.spikes);
  v.table({.name = "early_stop", .help = "Optional: end when the loss of [evaluation] stops falling."},
          d.early_stop);
}

}  // namespace kformer::Impl::schema
