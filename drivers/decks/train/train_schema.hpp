// SPDX-License-Identifier: MIT
#pragma once

#include "decks/generate_schema.hpp"
#include "decks/language_model_schema.hpp"
#include "decks/layer_schema.hpp"
#include "decks/train/parallel_schema.hpp"
#include "decks/train/policy_schema.hpp"
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
       .help = "time every kernel and region of the second step of the run (or of its only step), with a fence "
               "around each"},
      t.kernels);
  v.key({.name = "timeline",
         .help = "with `kernels`: also note when each of them begins and ends, and messages that are under "
                 "way, on every "
                 "rank; `kformer-trace` makes a trace of it"},
        t.timeline);
  v.key({.name = "machine_limits",
         .help = "measure the machine's limits before the first step; `false` skips this, and no share of the "
                 "limit is shown"},
        t.machine_limits);
}

template <class V>
void describe(V& v, TrainOutputTable& t) {
  describe(v, static_cast<OutputTable&>(t));
  v.key({.name = "model",
         .help =
             "folder for the trained model in the published layout, relative to the working directory; it must "
             "be new or empty, unless `overwrite` is set or the run resumes from a checkpoint; other files in "
             "it stay",
         .default_text = "none: the model is not saved"},
        t.model);
  v.key(
      {.name = "adapter",
       .help =
           "folder for the trained adapter in PEFT's layout; as `model`. With [adapter], `model` is the model "
           "with the adapter merged into its weights",
       .default_text = "none: the adapter is not saved"},
      t.adapter);
  v.key({.name = "adapter_gguf", .help = "also write `adapter.gguf` to that folder, for llama.cpp"},
        t.adapter_gguf);
}

template <class V>
void describe(V& v, InitTable& t) {
  v.key({.name = "scheme",
         .help = "`normal`: matrices have mean 0 and deviation `std`; `scaled`: the same, but `o_proj` and "
                 "`down_proj` are divided by √(2 · layers); norms start as 1, biases as 0"},
        t.scheme);
  v.key({.name = "std", .help = "standard deviation of matrices", .range = {.min = 0, .max = most_in_float}},
        t.std);
  v.key({.name = "seed", .help = "seed of the weights", .range = {.min = 0}, .default_text = "`run.seed`"},
        t.seed);
}

template <class V>
void describe(V& v, DataTable& t) {
  v.key({.name = "format",
         .help = "`text`: each file is a document; `tokens`: token ids in `.npy` or HDF5 files; `chat`: "
                 "conversations, or prompts with completions, one JSON object per line; `synthetic`: generated "
                 "tasks, no files"},
        t.format);
  v.key(
      {.name = "train",
       .help = "files to train on, relative to the deck; with `dpo` pairs, one JSON object per line with "
               "`chosen`, `rejected` and perhaps `prompt`; with `grpo` prompts, one JSON object per line with "
               "`prompt` and what rewards need, such as `answer`",
       .default_text = "required, unless synthetic",
       .repeatable = true},
      t.train);
  v.key({.name = "validation",
         .help = "files of [evaluation], relative to the deck; synthetic data need none",
         .default_text = "none",
         .repeatable = true},
        t.validation);
  v.key({.name = "chat_style",
         .help = "how conversations of `chat`, and messages of pairs, are written",
         .default_text = "as the chat template of the tokenizer says"},
        t.chat_style);
  v.key({.name = "packing",
         .help = "how documents fill sequences: `stream`: one after another, cut where a sequence is full; "
                 "`best_fit`: several whole ones in a sequence, separated in attention; `pad`: one in each"},
        t.packing);
  v.key({.name = "truncation",
         .help = "pairs with a sequence of more than `batch.seq_len` tokens: `keep_start`: its end is cut off; "
                 "`drop`: the pair is left out",
         .default_text = "`\"keep_start\"`"},
        t.truncation);
  v.key({.name = "shuffle",
         .help = "shuffle the sequences of each epoch; the order depends only on seed and epoch"},
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
         .help = "synthetic tasks: most letters of a text, or most digits of a number (at most 18)",
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
void describe(V& v, ObjectiveTable& t) {
  v.key({.name = "kind",
         .help =
             "`next_token`: the loss of every token; `completion`: that of answers alone, of `chat` and "
             "`synthetic` data; `dpo`: a loss of pairs of completions, of which one is preferred "
             "(arXiv:2305.18290). Its reference is the model without [adapter], or without adapters the model "
             "before the first step; `grpo`: a loss of completions that the model samples itself, by their "
             "[[reward]] (arXiv:2402.03300), see [policy]",
         .default_text = "`completion` for `chat` and `synthetic` data, otherwise `next_token`"},
        t.kind);
  v.key({.name = "loss",
         .help = "for `dpo`: −log σ of the difference of rewards, its square distance from a margin per token "
                 "(arXiv:2310.12036), or what it lacks to 1 (arXiv:2309.06657)",
         .default_text = "`\"sigmoid\"`"},
        t.loss);
  v.key({.name = "beta",
         .help = "for `dpo`: β > 0, how much a departure from the reference counts",
         .range = {.min = 0, .max = most_in_float},
         .default_text = "0.1"},
        t.beta);
  v.key({.name = "label_smoothing",
         .help = "for `dpo` with `sigmoid`: the probability that a pair is in the wrong order, less than 0.5",
         .range = {.min = 0, .max = 0.5},
         .default_text = "0"},
        t.label_smoothing);
}

template <class V>
void describe(V& v, BatchTable& t) {
  v.key(
      {.name = "seq_len",
       .help =
           "most tokens of a sequence, for which there is memory; shorter ones are computed up to the longest "
           "of their micro-batch",
       .range = {.min = 1, .max = longest_axis_value},
       .unit = "tokens",
       .required = true},
      t.seq_len);
  v.key({.name = "micro_batch",
         .help = "sequences of one forward and backward pass; memory grows with it; it changes results only "
                 "by rounding. With `dpo` a pair is two sequences, so it is even",
         .range = {.min = 1, .max = longest_axis_value},
         .default_text = "1, with `dpo` 2"},
        t.micro_batch);
  v.key({.name = "sequences",
         .help = "sequences of a step, over all ranks; the step accumulates the gradients of its micro-batches",
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
  v.key(batch_invariant_key(), t.batch_invariant);
  v.key(
      {.name = "weights",
       .help =
           "with [adapter]: format in which the projections of all layers stay in memory (QLoRA): `q8_0`, "
           "`q4_0`, `q4_1` or `nf4`; dense weights are quantised when they are loaded. `same`: as the "
           "checkpoint has them, unless `weights.keep_quantized` is `false`. Embedding, head and norms are in "
           "`storage`"},
      t.weights);
  v.key({.name = "loss_scale",
         .help = "factor on the loss before backward: none, constant, or adapted to the gradients",
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
  v.key({.name = "lr",
         .help = "learning rate, the largest of the schedule",
         .range = {.min = 0, .max = most_in_float}},
        t.lr);
  v.key({.name = "betas",
         .help = "decay of the running means of the gradient and of its square; two numbers less than 1",
         .range = {.min = 0, .max = 1},
         .repeatable = true},
        t.betas);
  v.key({.name = "eps",
         .help = "added to the root of the running mean square",
         .range = {.min = 1.2e-38, .max = most_in_float}},
        t.eps);
  v.key({.name = "weight_decay",
         .help = "weight decay of matrices, the embedding too; norms and biases do not decay",
         .range = {.min = 0, .max = most_in_float}},
        t.weight_decay);
  v.key({.name = "max_norm",
         .help = "clip the gradients of all parameters to this global norm: they are multiplied by "
                 "min(1, max_norm / (norm + 1e-6)), 0 = never",
         .range = {.min = 0, .max = most_in_float}},
        t.max_norm);
  describe_optimizer_storage(v, t);
}

template <class V>
void describe(V& v, ScheduleTable& t) {
  v.key({.name = "kind",
         .help = "learning rate after the warm-up: `constant`; `linear` or `cosine` decay to `min_lr`; `wsd`: "
                 "constant, then linear decay to `min_lr` in the last `decay_steps`"},
        t.kind);
  v.key({.name = "steps",
         .help = "steps of the training",
         .range = {.min = 1, .max = most_steps},
         .default_text = "give `steps` or `epochs`"},
        t.steps);
  v.key({.name = "epochs",
         .help = "passes over the training data; sequences that do not fill a last step are dropped",
         .range = {.min = 1, .max = most_steps},
         .default_text = "see `steps`"},
        t.epochs);
  v.key({.name = "warmup_steps",
         .help = "steps of linear warm-up: step t = 0, 1, ... has the rate lr·(t+1)/warmup_steps",
         .range = {.min = 0, .max = most_steps},
         .unit = "steps"},
        t.warmup_steps);
  v.key({.name = "min_lr", .help = "learning rate at the end", .range = {.min = 0, .max = most_in_float}},
        t.min_lr);
  v.key({.name = "decay_steps",
         .help = "for `wsd`: length of the decay at the end",
         .range = {.min = 1, .max = most_steps},
         .unit = "steps",
         .default_text = "a fifth of the steps, at least 1"},
        t.decay_steps);
}

template <class V>
void describe(V& v, MemoryTable& t) {
  v.key({.name = "recompute",
         .help = "what layers keep between forward and backward: everything (`none`), all but the outputs of "
                 "norms and the SwiGLU product (`pointwise`), their input (`layer`), the inputs of some layers "
                 "(`nested`), their input in host memory (`offload`), or the fastest mixture that fits "
                 "(`auto`); results have the same bits"},
        t.recompute);
  v.key({.name = "budget",
         .help = "maximum of the memory that Kformer books for the run: weights, gradients, optimizer, "
                 "activations, workspace and copies; on a device, device memory; a run that needs more is "
                 "refused before "
                 "it starts. The program itself and mapped files are not in it",
         .range = {.min = 0},
         .unit = "byte",
         .default_text = "what is free"},
        t.budget);
}

template <class V>
void describe(V& v, CheckpointTable& t) {
  v.key(
      {.name = "folder", .help = "folder for checkpoints, relative to the working directory", .required = true},
      t.folder);
  v.key({.name = "every_steps",
         .help = "steps between checkpoints, 0 = only at the end; a stopped run also saves one",
         .range = {.min = 0, .max = most_steps},
         .unit = "steps"},
        t.every_steps);
  v.key({.name = "keep", .help = "how many of the newest to keep", .range = {.min = 1, .max = most_steps}},
        t.keep);
  v.key(
      {.name = "background",
       .help = "write checkpoints during training, from a copy in host memory; with `false` there is no copy, "
               "and training waits"},
      t.background);
  v.key({.name = "resume",
         .help = "continue from the newest good checkpoint in the folder, or start if there is none; a resumed "
                 "run replaces the files of [output] that the earlier run left"},
        t.resume);
}

template <class V>
void describe(V& v, EvaluationTable& t) {
  v.key({.name = "every_steps",
         .help = "steps between evaluations, 0 = only at the end",
         .range = {.min = 0, .max = most_steps},
         .unit = "steps"},
        t.every_steps);
  v.key({.name = "sequences",
         .help = "use only this many sequences of the validation data, from the first, 0 = all",
         .range = {.min = 0, .max = most_steps}},
        t.sequences);
}

template <class V>
void describe(V& v, SamplesTable& t) {
  v.key({.name = "every_steps",
         .help = "steps between sets of texts, 0 = only at the end",
         .range = {.min = 0, .max = most_steps},
         .unit = "steps"},
        t.every_steps);
  v.key({.name = "prompts",
         .help = "texts that the model continues; an empty one is the beginning-of-text token alone",
         .default_text = "one empty prompt",
         .repeatable = true},
        t.prompts);
  v.key({.name = "max_new_tokens",
         .help = "new tokens per prompt; prompt and new tokens together are at most `batch.seq_len`",
         .range = {.min = 1, .max = longest_axis_value},
         .unit = "tokens"},
        t.max_new_tokens);
  v.key({.name = "temperature",
         .help = "logits are divided by this; 0 takes the most likely token",
         .range = {.min = 0, .max = most_in_float}},
        t.temperature);
}

template <class V>
void describe(V& v, SpikesTable& t) {
  v.key(
      {.name = "window",
       .help = "last steps, skipped ones too, that a step is compared with; until there are that many, no step "
               "is skipped",
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
  v.key({.name = "min_improvement",
         .help = "an evaluation is better if its loss is lower by more than this",
         .range = {.min = 0}},
        t.min_improvement);
}

constexpr std::string_view train_kind = "train";

template <class V>
void describe(V& v, TrainDeck& d) {
  DeckHeader header{.kind = std::string(train_kind)};
  describe_header(v, header, {train_kind});
  v.table({.name = "run",
           .help = "General settings. A training that runs out of memory always ends; `on_oom` has no effect."},
          d.run);
  v.table({.name = "profile", .help = "What to measure besides time."}, d.profile);
  v.table({.name = "output", .help = "The result file and the trained model."}, d.output);
  v.table(
      {.name = "weights",
       .help = "A checkpoint to start from. Without [adapter], quantised weights are expanded. Alternative to "
               "[model]."},
      d.weights);
  v.table({.name = "model",
           .help = "The model; keys as in published config.json files. `max_position_embeddings` is "
                   "`batch.seq_len` unless it is set. Alternative to [weights]."},
          d.model);
  v.table({.name = "init", .help = "The first weights, with [model]."}, d.init);
  v.table({.name = "adapter",
           .help = "Optional: low-rank adapters (LoRA) learn, and the weights stay as they are."},
          d.adapter);
  v.table({.name = "tokenizer", .help = "The tokenizer of `text` and `chat` data, of pairs and of [samples]."},
          d.tokenizer);
  v.table({.name = "objective", .help = "What is learnt."}, d.objective);
  v.table({.name = "policy", .help = "Of the objective `grpo`: how completions are sampled and learnt from."},
          d.policy);
  v.list(
      {.name = "reward", .help = "Of the objective `grpo`: what completions are rewarded for; at least one."},
      d.rewards);
  v.table({.name = "data", .help = "The data set."}, d.data);
  v.table({.name = "batch", .help = "The tokens of a step."}, d.batch);
  v.table({.name = "precision", .help = "Types of numbers."}, d.precision);
  v.table({.name = "optimizer", .help = "AdamW."}, d.optimizer);
  v.table({.name = "schedule", .help = "Length of the training and learning rate."}, d.schedule);
  v.table({.name = "memory", .help = "Memory limit and recomputation."}, d.memory);
  v.table({.name = "parallel", .help = "Optional: several ranks of MPI train together."}, d.parallel);
  v.table({.name = "checkpoint", .help = "Optional: files from which a run can continue with the same bits."},
          d.checkpoint);
  v.table({.name = "evaluation", .help = "Optional: the loss on validation data."}, d.evaluation);
  v.table({.name = "samples", .help = "Optional: sample texts during training."}, d.samples);
  v.table({.name = "spikes",
           .help = "Optional: skip steps whose loss or gradient norm is far above that of recent steps."},
          d.spikes);
  v.table({.name = "early_stop", .help = "Optional: end when the loss of [evaluation] stops falling."},
          d.early_stop);
}

}  // namespace kformer::Impl::schema
