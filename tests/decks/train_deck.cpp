// SPDX-License-Identifier: MIT
#include "decks/train/train_deck.hpp"

#include <nlohmann/json.hpp>

#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "deck_case.hpp"
#include "io/schema/bytes.hpp"

namespace {

using namespace kformer;
using namespace kformer::Testing;

const std::string header = header_of("train");
const std::string model = three_layers + "vocab_size = 300\n";
const std::string rest =
    "[data]\nformat = \"synthetic\"\n[batch]\nseq_len = 16\n[schedule]\nsteps = 10\n"
    "[output]\nmodel = \"out\"\n";
const std::string good = header + model + rest;

struct TrainDecks : DeckCase<load_train_deck> {
  // Both texts are of files below the folder of the deck.
  void put_files() const {
    put_contents(directory / "a.txt", "a");
    put_contents(directory / "b.txt", "b");
  }
};

// The deck of the issue, with every table.
const std::string full =
    header +
    "[run]\nname = \"r\"\nseed = 7\nthreads = 2\nwalltime_s = 5\nexecution_space = \"serial\"\n"
    "[output]\nfile = \"{name}.h5\"\noverwrite = true\nmodel = \"folder\"\n"
    "[weights]\npath = \"w\"\n[tokenizer]\nformat = \"byte\"\n"
    "[data]\nformat = \"text\"\ntrain = [\"a.txt\", \"b.txt\", \"a.txt\"]\n"
    "validation = \"b.txt\"\npacking = \"best_fit\"\nshuffle = true\ncache = \"c\"\n"
    "[batch]\nseq_len = 64\nmicro_batch = 2\nsequences = 4\n"
    "[precision]\nstorage = \"bf16\"\ncompute = \"full\"\nloss_scale = \"static\"\n"
    "initial_loss_scale = 8\n"
    "[optimizer]\nlr = 1e-2\nbetas = [0.9, 0.9]\neps = 1e-7\nweight_decay = 0.1\nmax_norm = 1\n"
    "states = \"int8\"\nmaster = \"none\"\n"
    "[schedule]\nkind = \"wsd\"\nsteps = 40\nwarmup_steps = 5\nmin_lr = 1e-4\ndecay_steps = 10\n"
    "[memory]\nrecompute = \"auto\"\nbudget = \"1.5 GiB\"\n"
    "[checkpoint]\nfolder = \"k\"\nevery_steps = 7\nkeep = 2\nbackground = false\nresume = true\n"
    "[evaluation]\nevery_steps = 9\nsequences = 3\n"
    "[samples]\nevery_steps = 11\nprompts = [\"x\", \"\", \"x\"]\nmax_new_tokens = 5\n"
    "temperature = 0.5\n[spikes]\nwindow = 64\nloss_z = 4\nnorm_z = 0\n"
    "[early_stop]\npatience = 2\nmin_improvement = 0.25\n"
    "[profile]\nkernels = true\ntimeline = true\nmachine_limits = false\n";

// A deck of pairs, with every key of theirs.
const std::string pairs =
    header +
    "[weights]\npath = \"w\"\n[tokenizer]\nformat = \"byte\"\n[objective]\nkind = \"dpo\"\nloss = \"sigmoid\"\n"
    "beta = 0.25\nlabel_smoothing = 0.125\n[data]\ntrain = \"a.txt\"\nvalidation = \"b.txt\"\n"
    "truncation = \"drop\"\nchat_style = \"chatml\"\n[batch]\nseq_len = 16\nmicro_batch = 4\nsequences = 8\n"
    "[schedule]\nsteps = 10\n[evaluation]\nsequences = 4\n[output]\nmodel = \"out\"\n";

// A deck of prompts and a reward.
const std::string prompts =
    header +
    "[weights]\npath = \"w\"\n[tokenizer]\nformat = \"byte\"\n[objective]\nkind = \"grpo\"\n"
    "[policy]\ngroup_size = 4\nmax_new_tokens = 8\n[[reward]]\nkind = \"regex\"\npattern = \"[a-e]\"\n"
    "[data]\ntrain = \"a.txt\"\n[batch]\nseq_len = 16\nmicro_batch = 4\nsequences = 8\n"
    "[schedule]\nsteps = 10\n[output]\nmodel = \"out\"\n";

}  // namespace

BOOST_FIXTURE_TEST_SUITE(train_deck, TrainDecks)

BOOST_AUTO_TEST_CASE(a_small_deck_has_defaults) {
  const auto deck = load(good, {"run.seed=5"});
  BOOST_TEST(deck.run.name == "deck");
  BOOST_TEST(deck.init->seed == 5);
  BOOST_TEST((deck.init->scheme == InitScheme::scaled));
  BOOST_TEST(deck.batch.micro_batch == 1);
  BOOST_TEST(deck.batch.sequences == 1);
  BOOST_TEST(deck.model->max_position_embeddings == 16);
  BOOST_TEST(deck.model->head_dim == 2);
  BOOST_TEST((deck.precision.loss_scaling == LossScalingRule::none));
  BOOST_TEST((deck.memory.recompute == Recompute::pointwise));
  BOOST_TEST(!deck.memory.budget_bytes().has_value());
  BOOST_TEST(!deck.checkpoint.has_value());
  BOOST_TEST(!deck.evaluation.has_value());
  BOOST_TEST(!deck.spikes.has_value());
  BOOST_TEST(deck.record.warnings.empty());
}

BOOST_AUTO_TEST_CASE(every_key_is_read) {
  put_files();
  const auto deck = load(full);
  TrainRunTable run;
  run.name = "r";
  run.seed = 7;
  run.threads = 2;
  run.walltime_s = 5;
  run.execution_space = "serial";
  BOOST_TEST((deck.run == run));
  BOOST_TEST((deck.profile == TrainProfileTable{.kernels = true, .timeline = true, .machine_limits = false}));
  BOOST_TEST(deck.output.model == "folder");
  BOOST_TEST(deck.weights->path == directory / "w");
  const auto a = directory / "a.txt", b = directory / "b.txt";
  BOOST_TEST((deck.data == DataTable{DataFormat::text, {a, b, a}, {b}, {}, Packing::best_fit, true, "c"}));
  BOOST_TEST((deck.batch == BatchTable{64, 2, 4}));
  BOOST_TEST(
      (deck.precision == TrainPrecisionTable{{LossScalingRule::fixed, 8}, DType::bf16, Precision::full}));
  BOOST_TEST(
      (deck.optimizer ==
       TrainOptimizerTable{1e-2, {0.9, 0.9}, 1e-7, 0.1, 1, OptimizerStates::eight_bit, MasterWeights::none}));
  BOOST_TEST((deck.schedule == ScheduleTable{ScheduleKind::wsd, 40, {}, 5, 1e-4, 10}));
  BOOST_TEST((deck.memory == MemoryTable{Recompute::automatic, "1.5 GiB"}));
  BOOST_TEST(deck.memory.budget_bytes().value() == 3ull << 29);
  BOOST_TEST((*deck.checkpoint == CheckpointTable{"k", 7, 2, false, true}));
  BOOST_TEST((*deck.evaluation == EvaluationTable{9, 3}));
  BOOST_TEST((*deck.samples == SamplesTable{11, {"x", "", "x"}, 5, 0.5}));
  BOOST_TEST((*deck.spikes == SpikesTable{64, 4, 0}));
  BOOST_TEST((*deck.early_stop == EarlyStopTable{2, 0.25}));
}

BOOST_AUTO_TEST_CASE(the_resolved_deck_means_the_same) {
  put_files();
  const std::string adapter = good + "[adapter]\nseed = 3\nlearning_rate_ratio = 2\ndropout = 0.5\n";
  for (const std::string& text :
       {good, full, pairs, prompts, adapter + "path = \"a\"\n",
        adapter + "targets = [\"q\", \"v\"]\nrank = 3\nalpha = 5\ndora = true\n[adapter.ranks]\nq = 2\n"}) {
    const auto deck = load(text);
    const auto again = load(deck.record.resolved);
    BOOST_TEST(again.record.resolved == deck.record.resolved);
    BOOST_TEST((again.run == deck.run && again.output == deck.output && again.weights == deck.weights));
    BOOST_TEST((again.model == deck.model && again.init == deck.init && again.tokenizer == deck.tokenizer));
    BOOST_TEST((again.adapter == deck.adapter));
    BOOST_TEST((again.data == deck.data && again.batch == deck.batch && again.precision == deck.precision));
    BOOST_TEST((again.optimizer == deck.optimizer && again.schedule == deck.schedule));
    BOOST_TEST((again.memory == deck.memory && again.checkpoint == deck.checkpoint));
    BOOST_TEST((again.evaluation == deck.evaluation && again.samples == deck.samples));
    BOOST_TEST((again.policy == deck.policy && again.rewards == deck.rewards));
    BOOST_TEST((again.spikes == deck.spikes && again.early_stop == deck.early_stop));
    BOOST_TEST((again.profile == deck.profile && again.objective == deck.objective));
  }
}

BOOST_AUTO_TEST_CASE(half_precision_scales_its_loss_unless_it_is_told_not_to) {
  BOOST_TEST((load(good, {"precision.storage=f16"}).precision.loss_scaling == LossScalingRule::dynamic));
  BOOST_TEST((load(good, {"precision.storage=bf16"}).precision.loss_scaling == LossScalingRule::none));
  BOOST_TEST((load(good, {"precision.storage=f16", "precision.loss_scale=none"}).precision.loss_scaling ==
              LossScalingRule::none));
}

BOOST_AUTO_TEST_CASE(bytes_have_units) {
  using Impl::schema::bytes_in;
  BOOST_TEST(bytes_in("4096").value() == 4096);
  BOOST_TEST(bytes_in("0").value() == 0);
  BOOST_TEST(bytes_in("9007199254740993").value() == (std::int64_t(1) << 53) + 1);
  BOOST_TEST(bytes_in("9223372036854775807").value() == std::numeric_limits<std::int64_t>::max());
  BOOST_TEST(!bytes_in("9223372036854775808"));
  BOOST_TEST(bytes_in("7B").value() == 7);
  BOOST_TEST(bytes_in("2KB").value() == 2000);
  BOOST_TEST(bytes_in("2KiB").value() == 2048);
  BOOST_TEST(bytes_in("80gb").value() == 80'000'000'000);
  BOOST_TEST(bytes_in("16 Gi").value() == std::int64_t(16) << 30);
  BOOST_TEST(!bytes_in("16G"));
  BOOST_TEST(bytes_in("3 MB").value() == 3000000);
  BOOST_TEST(bytes_in("3MiB").value() == 3 << 20);
  BOOST_TEST(bytes_in("0.5GB").value() == 500000000);
  BOOST_TEST(bytes_in("8GiB").value() == 8ll << 30);
  BOOST_TEST(bytes_in("1TiB").value() == 1ll << 40);
  for (const char* text : {"", "GiB", "8 gibi", "8GiB ", "-1", "nan", "inf", "1e30", "8 GiB/s", "0x10"})
    BOOST_TEST(!bytes_in(text).has_value(), text);
}

BOOST_AUTO_TEST_CASE(there_is_one_model) {
  BOOST_TEST(
      contains(faults(header + rest), "deck.toml:1:1: error: no model to train; add [model], or [weights]"));
  BOOST_TEST(
      contains(faults(good + "[weights]\npath = \"x\"\n"), "[model] and [weights] both define the model"));
  BOOST_TEST(contains(faults(header + "[weights]\npath = \"x\"\n" + rest + "[init]\nstd = 1\n"),
                      "error: [init] makes the weights of [model]"));
  BOOST_TEST(contains(faults(header + "[model]\nhidden_size = 8\n" + rest),
                      "deck.toml:3:2: error: missing key 'vocab_size' in [model]"));
  BOOST_TEST(contains(faults(good, {"model.num_key_value_heads=3"}),
                      "--set[1]:1:27: error: 'model.num_key_value_heads' = 3 does not divide"));
}

BOOST_AUTO_TEST_CASE(text_needs_a_tokenizer) {
  put_files();
  const std::string text =
      header + model + "[data]\ntrain = \"a.txt\"\n[batch]\nseq_len = 4\n[schedule]\nepochs = 1\n";
  BOOST_TEST(contains(faults(text), "data of format \"text\" needs a tokenizer"));
  BOOST_TEST(faults(text, {"tokenizer.format=byte"}) == "no fault");
  BOOST_TEST(faults(text, {"tokenizer.path=\"t.json\""}) == "no fault");
  BOOST_TEST(faults(text, {"data.format=tokens"}) == "no fault");
  BOOST_TEST(
      contains(faults(text, {"data.format=tokens", "samples.prompts=a"}), "[samples] needs a tokenizer"));
}

BOOST_AUTO_TEST_CASE(data_are_there_and_of_their_format) {
  put_files();
  const std::string text =
      header + model + "[tokenizer]\nformat = \"byte\"\n[batch]\nseq_len = 4\n[schedule]\nsteps = 1\n";
  BOOST_TEST(contains(faults(text), "missing table [data]"));
  BOOST_TEST(contains(faults(text + "[data]\n"), "missing key 'train' in [data]"));
  BOOST_TEST(contains(faults(text + "[data]\ntrain = [\"a.txt\", \"none.txt\"]\n"),
                      "deck.toml:17:19: error: cannot read 'none.txt': No such file"));
  BOOST_TEST(contains(faults(text + "[data]\ntrain = \"a.txt\"\nvalidation = \".\"\n"),
                      "deck.toml:18:14: error: cannot read"));
  BOOST_TEST(contains(faults(text + "[data]\ntrain = \"a.txt\"\ntask = \"copy\"\n"),
                      "'data.task' is for synthetic data, but 'data.format' = \"text\""));
  BOOST_TEST(contains(faults(good, {"data.train=\"a.txt\""}), "synthetic data have none"));
  BOOST_TEST(contains(faults(good, {"data.task=sum", "data.length=19"}), "at most 18 digits"));
  BOOST_TEST(
      contains(faults(good, {"data.task=add"}), "must be one of \"copy\", \"reverse\", \"sort\", \"sum\""));
}

BOOST_AUTO_TEST_CASE(the_objective_fits_the_data) {
  put_files();
  BOOST_TEST((load(good).objective == ObjectiveTable{ObjectiveKind::completion, {}, {}, {}}));
  BOOST_TEST((load(good, {"objective.kind=next_token"}).objective.kind == ObjectiveKind::next_token));
  BOOST_TEST((load(full).objective == ObjectiveTable{}));
  BOOST_TEST(
      (load(pairs).objective == ObjectiveTable{ObjectiveKind::dpo, PreferenceKind::sigmoid, 0.25, 0.125}));
  BOOST_TEST((load(pairs).data.truncation == Truncation::drop));
  BOOST_TEST(
      contains(faults(full, {"objective.kind=completion"}),
               "'objective.kind' = \"completion\" trains on answers, but data of format \"text\" have none; "
               "choose \"next_token\", or 'data.format' = \"chat\""));
  BOOST_TEST(contains(faults(good, {"objective.beta=0.1"}),
                      "'objective.beta' is for 'objective.kind' = \"dpo\", not \"completion\""));
  BOOST_TEST(contains(faults(good, {"data.truncation=drop"}),
                      "'data.truncation' is for pairs, but 'objective.kind' = \"completion\""));
}

BOOST_AUTO_TEST_CASE(pairs_are_whole) {
  put_files();
  const std::string few =
      header +
      "[weights]\npath = \"w\"\n[tokenizer]\nformat = \"byte\"\n[objective]\nkind = \"dpo\"\n"
      "[data]\ntrain = \"a.txt\"\n[batch]\nseq_len = 16\n[schedule]\nsteps = 10\n";
  const auto deck = load(few);
  BOOST_TEST((deck.objective == ObjectiveTable{ObjectiveKind::dpo, PreferenceKind::sigmoid, 0.1, 0}));
  BOOST_TEST((deck.data.truncation == Truncation::keep_start));
  BOOST_TEST((deck.batch == BatchTable{16, 2, 2}));
  const std::string even =
      " must be even: with 'objective.kind' = \"dpo\" a pair is two sequences, and none is cut";
  BOOST_TEST(contains(faults(few, {"batch.micro_batch=3"}), "'batch.micro_batch' = 3" + even));
  BOOST_TEST(contains(faults(few, {"batch.sequences=5"}), "'batch.sequences' = 5" + even));
  BOOST_TEST(contains(faults(pairs, {"evaluation.sequences=3"}),
                      "'evaluation.sequences' = 3 must be even: a pair is two sequences"));
  BOOST_TEST(contains(faults(few, {"batch.seq_len=1"}), "'batch.seq_len' = 1 is too little for pairs"));
  for (const char* key : {"format=tokens", "packing=pad", "cache=c"})
    BOOST_TEST(
        contains(
            faults(few, {std::string("data.") + key}),
            "is not for 'objective.kind' = \"dpo\", which reads pairs from JSON lines, each two sequences of "
            "their own; remove it"),
        key);
  BOOST_TEST(contains(faults(few, {"objective.beta=0"}), "'objective.beta' must be more than 0, got 0"));
  BOOST_TEST(contains(faults(few, {"objective.label_smoothing=0.5"}),
                      "'objective.label_smoothing' must be less than 0.5, got 0.5"));
  BOOST_TEST(contains(faults(few, {"objective.label_smoothing=0.1", "objective.loss=ipo"}),
                      "'objective.label_smoothing' is for 'objective.loss' = \"sigmoid\", not \"ipo\""));
  const std::string untold = header + model +
                             "[objective]\nkind = \"dpo\"\n[data]\ntrain = \"a.txt\"\n[batch]\nseq_len = 4\n" +
                             "[schedule]\nepochs = 1\n";
  BOOST_TEST(contains(faults(untold), "data of pairs needs a tokenizer"));
}

BOOST_AUTO_TEST_CASE(prompts_are_lines) {
  put_files();
  for (const char* key : {"format=tokens", "packing=pad", "cache=c"})
    BOOST_TEST(
        contains(faults(prompts, {std::string("data.") + key}),
                 "is not for prompts, which 'objective.kind' = \"grpo\" reads from JSON lines; remove it"),
        key);
}

BOOST_AUTO_TEST_CASE(a_reward_has_the_keys_of_its_kind) {
  put_files();
  const auto said = [&](const std::string& reward) { return faults(prompts, {"reward=[{" + reward + "}]"}); };
  for (const char* good_one :
       {"kind=\"length\",target=3,unit=\"characters\"", "kind=\"program\",command=\"judge\",timeout_s=1",
        "kind=\"contains\",field=\"x\",ignore_case=true", "kind=\"regex\",pattern=\"x\",ignore_case=true",
        "kind=\"arithmetic\",field=\"x\",weight=0"})
    BOOST_TEST(said(good_one) == "no fault", good_one);
  for (const auto& [kind, key] :
       {std::pair{"regex", "pattern"}, {"length", "target"}, {"program", "command"}}) {
    const std::string reward = std::string("kind=\"") + kind + '"';
    BOOST_TEST(contains(said(reward), std::string("'reward[0].") + key + "' is required for kind = \"" + kind));
  }
  for (const auto& [reward, key] : {std::pair{"kind=\"regex\",pattern=\"x\",field=\"y\"", "field"},
                                    {"kind=\"arithmetic\",ignore_case=true", "ignore_case"},
                                    {"kind=\"contains\",pattern=\"x\"", "pattern"},
                                    {"kind=\"contains\",target=3", "target"},
                                    {"kind=\"contains\",unit=\"characters\"", "unit"},
                                    {"kind=\"contains\",command=\"judge\"", "command"},
                                    {"kind=\"contains\",timeout_s=1", "timeout_s"}})
    BOOST_TEST(contains(said(reward), std::string("'reward[0].") + key + "' has no effect with kind = "), key);
  BOOST_TEST(!contains(said("kind=\"regexp\",pattern=\"x\""), "has no effect"));
}

BOOST_AUTO_TEST_CASE(numbers_that_float_does_not_hold_are_refused) {
  for (const char* key : {"optimizer.lr", "optimizer.eps", "optimizer.weight_decay", "optimizer.max_norm",
                          "schedule.min_lr", "init.std", "adapter.alpha", "adapter.learning_rate_ratio",
                          "model.rms_norm_eps", "model.rope_theta", "precision.growth_factor", "policy.beta",
                          "policy.temperature", "objective.beta", "samples.temperature"})
    for (const char* number : {"1e39", "1e308"})
      BOOST_TEST(contains(faults(good, {std::string(key) + "=" + number}),
                          "'" + std::string(key) + "' must be a number "),
                 key << " = " << number);
  BOOST_TEST(contains(faults(good, {"optimizer.lr=1e308"}),
                      "'optimizer.lr' must be a number in [0, 1e+38], got float 1e+308"));
  BOOST_TEST(contains(faults(good, {"optimizer.lr=1e30", "adapter.learning_rate_ratio=1e10"}),
                      "'adapter.learning_rate_ratio' · optimizer.lr = 1e+40 is more than 1e+38"));
  load(good, {"optimizer.lr=1e38", "run.walltime_s=1e300"});
}

BOOST_AUTO_TEST_CASE(an_adapter_can_learn) {
  BOOST_TEST(contains(faults(good, {"adapter.alpha=0"}), "'adapter.alpha' must be a number in (0, 1e+38]"));
  BOOST_TEST(contains(faults(good, {"adapter.learning_rate_ratio=0"}),
                      "'adapter.learning_rate_ratio' must be a number in (0, 1e+38]"));
}

BOOST_AUTO_TEST_CASE(a_folder_says_what_its_adapter_is) {
  for (const char* key : {"targets=q", "rank=2", "ranks.q=2", "alpha=3", "rank_stabilized=true", "dora=true"})
    BOOST_TEST(contains(faults(good, {"adapter.path=\"a\"", std::string("adapter.") + key}),
                        "is for a new adapter, but 'adapter.path' names one; remove it"),
               key);
}

BOOST_AUTO_TEST_CASE(contradictions_are_reported_with_their_place) {
  BOOST_TEST(contains(faults(good, {"batch.micro_batch=4", "batch.sequences=2"}),
                      "--set[2]:1:17: error: 'batch.sequences' = 2 is less than batch.micro_batch = 4"));
  BOOST_TEST(contains(faults(good, {"optimizer.betas=[0.9]"}), "'optimizer.betas' must be two numbers, got 1"));
  BOOST_TEST(
      contains(faults(good, {"optimizer.betas=[0.9, 1]"}), "'optimizer.betas' must be less than 1, got 1"));
  BOOST_TEST(contains(faults(good, {"optimizer.states=int8", "precision.storage=f64"}),
                      "'optimizer.states' = \"int8\" is not for 'precision.storage' = \"f64\""));
  BOOST_TEST(
      contains(faults(good, {"precision.backoff_factor=1"}), "'precision.backoff_factor' must be less than 1"));
  BOOST_TEST(contains(faults(good, {"schedule.epochs=1"}), "both end the training; remove one"));
  BOOST_TEST(contains(faults(header + model + "[data]\nformat = \"synthetic\"\n[batch]\nseq_len = 16\n"),
                      "the training has no end; set 'schedule.steps' or 'schedule.epochs'"));
  BOOST_TEST(contains(faults(good, {"schedule.warmup_steps=11"}),
                      "'schedule.warmup_steps' = 11 is more than schedule.steps = 10"));
  BOOST_TEST(contains(faults(good, {"schedule.kind=wsd", "schedule.warmup_steps=6", "schedule.decay_steps=5"}),
                      "'schedule.warmup_steps' + decay_steps = 11 is more than schedule.steps = 10"));
  BOOST_TEST(
      contains(faults(good, {"schedule.decay_steps=5"}), "is for 'schedule.kind' = \"wsd\", not \"constant\""));
  // A constant schedule does not read it.
  BOOST_TEST(!contains(faults(good, {"schedule.min_lr=0.1"}), "min_lr"));
  BOOST_TEST(contains(load(good, {"schedule.min_lr=0.1"}).record.warnings.at(0),
                      "warning: 'schedule.min_lr' has no effect with 'schedule.kind' = \"constant\""));
  BOOST_TEST(contains(faults(good, {"schedule.kind=cosine", "schedule.min_lr=0.1"}),
                      "'schedule.min_lr' = 0.1 is more than optimizer.lr = 0.001"));
  BOOST_TEST(contains(faults(good, {"memory.budget=\"8 gibs\""}),
                      "--set[1]:1:15: error: 'memory.budget' must be a number of bytes"));
  BOOST_TEST(contains(faults(good, {"memory.budget=-8"}), "'memory.budget' must be a number of bytes"));
  BOOST_TEST(contains(faults(good, {"checkpoint.keep=2"}), "missing key 'folder' in [checkpoint]"));
  BOOST_TEST(
      contains(faults(good, {"profile.timeline=true"}),
               "'profile.timeline' is of the step that 'profile.kernels' = true asks for; set that, too"));
  BOOST_TEST(contains(faults(good, {"early_stop.patience=2"}), "[early_stop] needs [evaluation]"));
  BOOST_TEST(contains(faults(good, {"early_stop.patience=2", "evaluation.sequences=2"}),
                      "[early_stop] needs 'evaluation.every_steps' > 0"));
  BOOST_TEST(contains(faults(good, {"data.pack=stream"}), "unknown key 'pack' in [data]"));
}

// What they say in words: tests/drivers/kformer_train_quantized.py.
BOOST_AUTO_TEST_CASE(quantised_weights_need_an_adapter) {
  const std::string adapter = "[adapter]\n", nf4 = "[precision]\nweights = \"nf4\"\n",
                    base = header + model + rest;
  const std::string unsaved = base.substr(0, base.find("[output]"));
  BOOST_TEST(contains(faults(base + nf4), "'precision.weights' = \"nf4\" cannot be trained"));
  BOOST_TEST(contains(faults(base + adapter + nf4),
                      "'output.model' merges the adapter into weights that stay quantised"));
  const auto deck = load(unsaved + adapter + nf4);
  BOOST_TEST((deck.precision.weights == WeightStorage::nf4));
  BOOST_TEST((load(deck.record.resolved).precision == deck.precision));
}

BOOST_AUTO_TEST_CASE(all_faults_are_reported_together) {
  const std::string text =
      faults(good, {"batch.seq_len=0", "optimizer.lr=-1", "memory.budget=x", "sampels.prompts=a"});
  for (const char* part : {"'batch.seq_len' must be", "'optimizer.lr' must be", "'memory.budget' must be",
                           "unknown table [sampels]", "did you mean 'samples'?"})
    BOOST_TEST(contains(text, part), part);
}

BOOST_AUTO_TEST_CASE(the_key_of_the_type_is_found_by_its_usual_name) {
  BOOST_TEST(contains(faults(good, {"weights.dtype=float32"}), "did you mean 'precision.storage'?"));
  BOOST_TEST(contains(faults(good, {"precision.storage=float32"}), "did you mean 'f32'?"));
  const std::vector<std::pair<std::string, std::string>> names{{"optimizer.learning_rate=1", "lr"},
                                                               {"schedule.learning_rate=1", "optimizer.lr"},
                                                               {"model.d_ff=1", "intermediate_size"},
                                                               {"model.n_layers=1", "num_hidden_layers"},
                                                               {"model.n_heads=1", "num_attention_heads"},
                                                               {"model.n_kv_heads=1", "num_key_value_heads"},
                                                               {"model.num_kv_heads=1", "num_key_value_heads"}};
  for (const auto& [word, name] : names)
    BOOST_TEST(contains(faults(good, {word}), "did you mean '" + name + "'?"), word);
}

BOOST_AUTO_TEST_CASE(lost_weights_and_long_sequences_are_warned_of) {
  const auto lost =
      load(header + model + "[data]\nformat = \"synthetic\"\n[batch]\nseq_len = 16\n[schedule]\nsteps = 1\n");
  BOOST_TEST_REQUIRE(lost.record.warnings.size() == 1u);
  BOOST_TEST(contains(lost.record.warnings[0], "the trained weights are lost"));
  const auto longer = load(good, {"model.max_position_embeddings=8"});
  BOOST_TEST_REQUIRE(longer.record.warnings.size() == 1u);
  BOOST_TEST(contains(longer.record.warnings[0],
                      "'batch.seq_len' = 16 is more than model.max_position_embeddings = 8"));
}

BOOST_AUTO_TEST_CASE(a_space_must_be_built) {
  BOOST_TEST(execution_space_of(load(good).run, built) == "openmp");
  BOOST_TEST(execution_space_of(load(good, {"run.execution_space=serial"}).run, built) == "serial");
  BOOST_CHECK_THROW(execution_space_of(load(good, {"run.execution_space=cuda"}).run, built), DeckError);
}

BOOST_AUTO_TEST_CASE(the_documentation_is_current) {
  check_documentation("train", "kformer-train", describe_deck_markdown<TrainDeck>());
}

BOOST_AUTO_TEST_CASE(the_json_schema_knows_the_tables) {
  const auto schema = nlohmann::json::parse(describe_deck_json_schema<TrainDeck>());
  const auto& tables = schema.at("properties");
  BOOST_TEST(tables.at("batch").at("properties").at("seq_len").at("minimum") == 1);
  BOOST_TEST(tables.at("checkpoint").at("required").at(0) == "folder");
  BOOST_TEST(tables.at("memory").at("properties").at("recompute").at("enum").at(5) == "auto");
  const auto& alpha = tables.at("adapter").at("properties").at("alpha");
  BOOST_TEST((alpha.at("exclusiveMinimum") == 0 && alpha.at("maximum") == 1e38 && !alpha.contains("minimum")));
  const auto& walltime = tables.at("run").at("properties").at("walltime_s");
  BOOST_TEST(walltime.at("description").get<std::string>().ends_with(" [s]"));
}

BOOST_AUTO_TEST_SUITE_END()
