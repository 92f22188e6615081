// SPDX-License-Identifier: MIT
#include "decks/train/train_checks.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "decks/generate_checks.hpp"
#include "decks/language_model.hpp"
#include "decks/layer_checks.hpp"
#include "decks/prompt_checks.hpp"
#include "decks/sweep/sweep_checks.hpp"
#include "decks/train/parallel_checks.hpp"
#include "decks/train/policy_checks.hpp"
#include "io/schema/read_file.hpp"

namespace kformer::Impl::schema {
namespace {

using Path = std::vector<std::string>;

// Reports faults of one deck at the keys they are about.
class TrainCheck {
 public:
  TrainCheck(TrainDeck& deck, const LoadedDeck& loaded, Diagnostics& diagnostics)
      : m_deck(deck), m_loaded(loaded), m_diagnostics(diagnostics) {}

  void source() {
    if (!m_deck.model && !m_deck.weights)
      m_diagnostics.error({m_loaded.source, 1, 1, 0},
                          "no model to train; add [model], or [weights] to start from a checkpoint");
    if (m_deck.model && m_deck.weights)
      error({"weights"}, "[model] and [weights] both define the model; remove one of them");
    if (m_deck.weights && given({"init"}))
      error({"init"}, "[init] makes the weights of [model], but this deck reads those of [weights]");
    if (m_deck.model) check_language_model(*m_deck.model, m_loaded, m_diagnostics);
    if (m_deck.model && m_deck.model->max_position_embeddings < m_deck.batch.seq_len)
      warn({"batch", "seq_len"},
           fmt::format("'batch.seq_len' = {} is more than model.max_position_embeddings = {}",
                       m_deck.batch.seq_len, m_deck.model->max_position_embeddings));
  }

  void adapter() {
    if (!m_deck.adapter && !m_deck.output.adapter.empty())
      error({"output", "adapter"}, "'output.adapter' needs [adapter]");
    if (m_deck.output.adapter_gguf && m_deck.output.adapter.empty())
      error({"output", "adapter_gguf"}, "'output.adapter_gguf' needs 'output.adapter', the folder of the file");
    if (m_deck.output.adapter_gguf && m_deck.adapter && m_deck.adapter->dora)
      error({"output", "adapter_gguf"},
            "'output.adapter_gguf' cannot hold the magnitudes of 'adapter.dora'; remove one of them");
    frozen_weights();
    if (!m_deck.adapter) return;
    check_adapter(*m_deck.adapter, m_loaded, m_diagnostics);
    if (const double rate = m_deck.optimizer.lr * m_deck.adapter->learning_rate_ratio; rate > most_in_float)
      error({"adapter", "learning_rate_ratio"},
            fmt::format("'adapter.learning_rate_ratio' · optimizer.lr = {} is more than {}", rate,
                        most_in_float));
    if (!m_deck.weights) warn({"adapter"}, "[adapter] adapts the random weights of [init], which do not learn");
  }

  void tokenizer() {
    check_tokenizer(m_deck.tokenizer, m_deck.weights, m_loaded, m_diagnostics);
    const DataFormat format = m_deck.data.format;
    const bool needed = pairs() || prompts() || format == DataFormat::text || format == DataFormat::chat ||
                        (m_deck.samples && format != DataFormat::synthetic);
    const bool known =
        m_deck.weights || m_deck.tokenizer.format == TokenizerFormat::byte || !m_deck.tokenizer.path.empty();
    if (needed && !known)
      error(
          {"tokenizer", "path"},
          fmt::format("{} needs a tokenizer; set 'tokenizer.path', or 'tokenizer.format' = \"byte\"",
                      pairs()                        ? "data of pairs"
                      : prompts()                    ? "'objective.kind' = \"grpo\""
                      : format == DataFormat::tokens ? "[samples]"
                                                     : fmt::format("data of format \"{}\"", name_of(format))));
  }

  void objective() {
    const ObjectiveTable& t = m_deck.objective;
    const DataFormat format = m_deck.data.format;
    if (t.kind == ObjectiveKind::completion && (format == DataFormat::text || format == DataFormat::tokens))
      error({"objective", "kind"},
            fmt::format(
                "'objective.kind' = \"completion\" trains on answers, but data of format \"{}\" have none; "
                "choose \"next_token\", or 'data.format' = \"chat\"",
                name_of(format)));
    if (prompts()) {
      require_lines("prompts, which 'objective.kind' = \"grpo\" reads from JSON lines");
      check_policy(m_deck, m_loaded, m_diagnostics);
      if (!m_deck.precision.batch_invariant)
        warn({"precision", "batch_invariant"},
             "'precision.batch_invariant' = false: the log-probabilities of the sampler differ from those of "
             "the trainer, and ratios from 1");
      other_distribution();
    } else {
      for (const char* table : {"policy", "reward"})
        if (given({table}))
          error({table},
                fmt::format("[{}] is for 'objective.kind' = \"grpo\", not \"{}\"", table, name_of(t.kind)));
    }
    if (pairs()) {
      pairs_of_completions();
      return;
    }
    for (const char* key : {"loss", "beta", "label_smoothing"})
      if (given({"objective", key}))
        error({"objective", key}, fmt::format("'objective.{}' is for 'objective.kind' = \"dpo\", not \"{}\"",
                                              key, name_of(t.kind)));
    if (given({"data", "truncation"}))
      error({"data", "truncation"},
            fmt::format("'data.truncation' is for pairs, but 'objective.kind' = \"{}\"", name_of(t.kind)));
  }

  void data() {
    const DataTable& t = m_deck.data;
    const bool synthetic = t.format == DataFormat::synthetic;
    if (!given({"data"}))
      m_diagnostics.error({m_loaded.source, 1, 1, 0}, "missing table [data]; it names the training data");
    else if (!synthetic && !given({"data", "train"}))
      error({"data", "train"}, "missing key 'train' in [data]: the files to train on");
    for (const auto& [key, files] : {std::pair{"train", &t.train}, {"validation", &t.validation}}) {
      if (synthetic && given({"data", key}))
        error({"data", key}, fmt::format("'data.{}' names files, but synthetic data have none", key));
      else
        readable(key, *files);
    }
    for (const char* key : {"task", "length", "examples"})
      if (!synthetic && given({"data", key}))
        error({"data", key}, fmt::format("'data.{0}' is for synthetic data, but 'data.format' = \"{1}\"", key,
                                         name_of(t.format)));
    if (t.format != DataFormat::chat && !pairs() && !prompts() && given({"data", "chat_style"}))
      error(
          {"data", "chat_style"},
          fmt::format("'data.chat_style' is for conversations, but 'data.format' = \"{}\"", name_of(t.format)));
    if (synthetic && t.task == SyntheticTask::sum && *t.length > 18)
      error({"data", "length"},
            fmt::format("'data.length' = {} is too much for sums; at most 18 digits", *t.length));
  }

  void batch() {
    const BatchTable& t = m_deck.batch;
    if (!given({"batch"}))
      m_diagnostics.error({m_loaded.source, 1, 1, 0}, "missing table [batch]; it sets 'seq_len'");
    for (const auto& [key, value] : {std::pair{"micro_batch", t.micro_batch}, {"sequences", t.sequences}})
      if (pairs() && given({"batch", key}) && value % 2 != 0)
        error({"batch", key},
              fmt::format("'batch.{}' = {} must be even: with 'objective.kind' = \"dpo\" a pair is two "
                          "sequences, and none is cut",
                          key, value));
    if (t.sequences < t.micro_batch && given({"batch", "sequences"}))
      error({"batch", "sequences"}, fmt::format("'batch.sequences' = {} is less than batch.micro_batch = {}",
                                                t.sequences, t.micro_batch));
  }

  void numbers() {
    check_loss_scale(m_deck.precision, "loss_scale", m_loaded, m_deck.record.warnings, m_diagnostics);
    const TrainOptimizerTable& t = m_deck.optimizer;
    if (const std::size_t betas = number_of_values({"optimizer", "betas"}); betas != 0 && betas != 2)
      error({"optimizer", "betas"}, fmt::format("'optimizer.betas' must be two numbers, got {}", betas));
    for (const double beta : t.betas)
      if (beta >= 1)
        error({"optimizer", "betas"}, fmt::format("'optimizer.betas' must be less than 1, got {}", beta));
    if (t.states == OptimizerStates::eight_bit && m_deck.precision.storage == DType::f64)
      error({"optimizer", "states"}, "'optimizer.states' = \"int8\" is not for 'precision.storage' = \"f64\"");
  }

  void schedule() {
    const ScheduleTable& t = m_deck.schedule;
    if (!t.steps && !t.epochs && !given({"schedule", "steps"}) && !given({"schedule", "epochs"}))
      m_diagnostics.error(place_of(m_loaded, {"schedule", "steps"}),
                          "the training has no end; set 'schedule.steps' or 'schedule.epochs'");
    if (t.steps && t.epochs)
      error({"schedule", "epochs"}, "'schedule.steps' and 'schedule.epochs' both end the training; remove one");
    if (t.min_lr > m_deck.optimizer.lr && t.kind != ScheduleKind::constant)
      error({"schedule", "min_lr"}, fmt::format("'schedule.min_lr' = {} is more than optimizer.lr = {}",
                                                t.min_lr, m_deck.optimizer.lr));
    if (t.min_lr > 0 && t.kind == ScheduleKind::constant)
      warn({"schedule", "min_lr"}, "'schedule.min_lr' has no effect with 'schedule.kind' = \"constant\"");
    if (t.decay_steps && t.kind != ScheduleKind::wsd)
      error(
          {"schedule", "decay_steps"},
          fmt::format("'schedule.decay_steps' is for 'schedule.kind' = \"wsd\", not \"{}\"", name_of(t.kind)));
    const std::int64_t ends = t.warmup_steps + t.decay_steps.value_or(0);
    if (t.steps && ends > *t.steps)
      error({"schedule", "warmup_steps"},
            fmt::format("'schedule.warmup_steps'{} = {} is more than schedule.steps = {}",
                        t.decay_steps ? " + decay_steps" : "", ends, *t.steps));
  }

  void gguf_of_parts(const char* key, std::int64_t ranks, const char* parts) {
    error(
        {"output", "adapter_gguf"},
        fmt::format("'output.adapter_gguf' is not for 'parallel.{}' = {}, whose ranks have {}; remove it, and "
                    "convert 'output.adapter'",
                    key, ranks, parts));
  }

  // Each rank has micro-batches, in order.
  void parallel() {
    if (!m_deck.parallel || m_deck.parallel->data < 1 || m_deck.parallel->tensor < 1 ||
        m_deck.parallel->context < 1 || m_deck.parallel->pipeline < 1 || m_deck.parallel->parts < 1)
      return;
    const ParallelTable& t = *m_deck.parallel;
    check_divided(t, m_deck.memory.recompute, m_deck.model, m_loaded, m_diagnostics);
    warn_of_one_rank(t, m_loaded, m_deck.record.warnings);
    if (t.context > 1 && m_deck.batch.seq_len % (2 * t.context) != 0)
      error({"parallel", "context"},
            fmt::format(
                "'parallel.context' = {} needs a 'batch.seq_len' that is a multiple of {}, two chunks for "
                "each rank, not {}",
                t.context, 2 * t.context, m_deck.batch.seq_len));
    if (const std::int64_t tokens = m_deck.batch.micro_batch * m_deck.batch.seq_len / t.context;
        t.sequence && tokens % t.tensor != 0)
      error({"parallel", "sequence"},
            fmt::format("'parallel.sequence': {} ranks do not divide the {} tokens of a micro-batch "
                        "('batch.micro_batch' x "
                        "'batch.seq_len'{}); change one of them",
                        t.tensor, tokens, t.context > 1 ? ", of one of 'parallel.context' ranks" : ""));
    if (m_deck.output.adapter_gguf && t.pipeline > 1)
      gguf_of_parts("pipeline", t.pipeline, "adapters of some layers");
    else if (m_deck.output.adapter_gguf && t.tensor > 1)
      gguf_of_parts("tensor", t.tensor, "parts of adapters");
    if (const auto fault = objective_fault(t, m_deck.objective.kind))
      error({"parallel", fault->key}, fault->text);
    if (m_deck.batch.micro_batch < 1) return;
    if (const auto fault = share_fault(t, {.sequences = "batch.sequences",
                                           .batch = "batch.micro_batch",
                                           .change = "[batch]",
                                           .sequences_of_step = m_deck.batch.sequences,
                                           .sequences_of_micro_batch = m_deck.batch.micro_batch}))
      error({"parallel", fault->key}, fault->text);
  }

  void parts() {
    if (m_deck.checkpoint && given({"checkpoint", "folder"}) && m_deck.checkpoint->folder.empty())
      error({"checkpoint", "folder"}, "'checkpoint.folder' must not be empty");
    if (m_deck.evaluation && m_deck.data.validation.empty() && m_deck.data.format != DataFormat::synthetic &&
        !given({"data", "validation"}))
      error({"evaluation"}, "[evaluation] needs 'data.validation'");
    if (!m_deck.evaluation && given({"data", "validation"}))
      warn({"data", "validation"}, "'data.validation' is not read without [evaluation]");
    if (m_deck.early_stop && !m_deck.evaluation) error({"early_stop"}, "[early_stop] needs [evaluation]");
    if (m_deck.early_stop && m_deck.evaluation && m_deck.evaluation->every_steps == 0)
      error({"early_stop"}, "[early_stop] needs 'evaluation.every_steps' > 0");
    if (m_deck.profile.timeline && !m_deck.profile.kernels)
      error({"profile", "timeline"},
            "'profile.timeline' is of the step that 'profile.kernels' = true asks for; set that, too");
    if (m_deck.samples)
      for (std::size_t i = 0; i < m_deck.samples->prompts.size(); ++i)
        check_length_of_text(m_deck.samples->prompts[i], fmt::format("samples.prompts[{}]", i),
                             place_of(m_loaded, {"samples", "prompts"}), m_diagnostics);
    if (m_deck.output.model.empty() && m_deck.output.adapter.empty() && !m_deck.checkpoint)
      m_deck.record.warnings.push_back(
          fmt::format("{}: warning: neither 'output.{}' nor [checkpoint] is set: the trained {} are lost",
                      to_string(place_of(m_loaded, {"output"})), m_deck.adapter ? "adapter" : "model",
                      m_deck.adapter ? "adapters" : "weights"));
  }

 private:
  bool pairs() const { return m_deck.objective.kind == ObjectiveKind::dpo; }
  bool prompts() const { return m_deck.objective.kind == ObjectiveKind::grpo; }

  // By their values: a resolved deck has the defaults of all keys.
  void require_lines(const std::string& what) {
    const DataTable& d = m_deck.data;
    for (const auto& [key, other] : {std::pair{"format", d.format != DataFormat::text},
                                     {"packing", d.packing != Packing::stream},
                                     {"cache", d.cache.has_value()}})
      if (other) error({"data", key}, fmt::format("'data.{}' is not for {}; remove it", key, what));
  }

  // Log-probabilities are those of the model itself.
  void other_distribution() {
    const PolicyTable& t = *m_deck.policy;
    for (const auto& [key, other] :
         {std::pair{"temperature", t.temperature != 1}, {"top_k", t.top_k > 0}, {"top_p", t.top_p < 1}})
      if (other)
        warn({"policy", key},
             fmt::format(
                 "'policy.{}': completions are drawn from another distribution than the one that learns, so "
                 "that gradients are not those of the expected reward",
                 key));
  }

  void pairs_of_completions() {
    const ObjectiveTable& t = m_deck.objective;
    require_lines(
        "'objective.kind' = \"dpo\", which reads pairs from JSON lines, each two sequences of their own");
    if (m_deck.batch.seq_len < 2)
      error({"batch", "seq_len"},
            "'batch.seq_len' = 1 is too little for pairs; at least 2, for a prompt and a completion");
    if (*t.beta <= 0)
      error({"objective", "beta"}, fmt::format("'objective.beta' must be more than 0, got {}", *t.beta));
    if (*t.label_smoothing >= 0.5)
      error({"objective", "label_smoothing"},
            fmt::format("'objective.label_smoothing' must be less than 0.5, got {}", *t.label_smoothing));
    if (*t.label_smoothing > 0 && *t.loss != PreferenceKind::sigmoid)
      error({"objective", "label_smoothing"},
            fmt::format("'objective.label_smoothing' is for 'objective.loss' = \"sigmoid\", not \"{}\"",
                        name_of(*t.loss)));
    if (m_deck.evaluation && m_deck.evaluation->sequences % 2 != 0)
      error({"evaluation", "sequences"},
            fmt::format("'evaluation.sequences' = {} must be even: a pair is two sequences",
                        m_deck.evaluation->sequences));
  }

  bool given(const Path& path) const { return has(m_loaded, path); }

  void frozen_weights() {
    const WeightStorage storage = m_deck.precision.weights;
    if (!m_deck.adapter && storage != WeightStorage::same)
      error({"precision", "weights"},
            fmt::format(
                "'precision.weights' = \"{}\" cannot be trained: quantised weights do not learn; add [adapter]",
                name_of(storage)));
    if (storage == WeightStorage::tq2_0 || storage == WeightStorage::tq1_0)
      error(
          {"precision", "weights"},
          fmt::format("'precision.weights' = \"{}\": dense weights do not become ternary when they are loaded; "
                      "kformer-quantize makes a checkpoint of ternary ones, which \"same\" keeps",
                      name_of(storage)));
    if (m_deck.adapter && storage != WeightStorage::same && !m_deck.output.model.empty())
      error({"output", "model"},
            fmt::format(
                "'output.model' merges the adapter into weights that stay quantised, 'precision.weights' = "
                "\"{}\"; set 'output.adapter', which kformer-generate adds to the dense weights",
                name_of(storage)));
  }

  // As the deck has them; 0 if the key is absent.
  std::size_t number_of_values(const Path& path) const {
    const Entry* entry = find_path(m_loaded.root, path);
    if (entry == nullptr) return 0;
    const auto* array = std::get_if<Array>(&entry->value.data);
    return array == nullptr ? 1 : array->size();
  }
  void error(const Path& path, std::string message) {
    m_diagnostics.error(place_of(m_loaded, path), std::move(message));
  }
  void warn(const Path& path, const std::string& message) {
    m_deck.record.warnings.push_back(
        fmt::format("{}: warning: {}", to_string(place_of(m_loaded, path)), message));
  }

  void readable(const char* key, const std::vector<std::filesystem::path>& files) {
    const Entry* entry = find_path(m_loaded.root, {"data", key});
    if (entry == nullptr) return;
    const auto* elements = std::get_if<Array>(&entry->value.data);
    for (std::size_t i = 0; i < files.size(); ++i) {
      const bool at_element = elements != nullptr && elements->size() == files.size();
      try {
        read_file(files[i], 1);
      } catch (const FileError& fault) {
        m_diagnostics.error(at_element ? (*elements)[i].place : entry->value.place, fault.what());
      }
    }
  }

  TrainDeck& m_deck;
  const LoadedDeck& m_loaded;
  Diagnostics& m_diagnostics;
};

}  // namespace

void check_adapter(const AdapterTable& table, const LoadedDeck& loaded, Diagnostics& diagnostics) {
  const auto error = [&](const char* key, std::string message) {
    diagnostics.error(place_of(loaded, {"adapter", key}), std::move(message));
  };
  // By their values, for the resolved deck has all keys.
  const AdapterTable defaults;
  if (!table.path.empty())
    for (const auto& [key, other] : {std::pair{"targets", table.targets != defaults.targets},
                                     {"rank", table.rank != defaults.rank},
                                     {"ranks", table.ranks != defaults.ranks},
                                     {"alpha", table.alpha != defaults.alpha},
                                     {"rank_stabilized", table.rank_stabilized},
                                     {"dora", table.dora}})
      if (other)
        error(key,
              fmt::format("'adapter.{}' is for a new adapter, but 'adapter.path' names one; remove it", key));
  if (std::ranges::count(table.targets, AdapterTarget::all) > 0 && table.targets.size() > 1)
    error("targets", "'adapter.targets' names \"all\" and others; \"all\" stands alone");
  if (table.dropout && *table.dropout >= 1)
    error("dropout", fmt::format("'adapter.dropout' must be below 1, got {}", *table.dropout));
  const LoraConfig lora = lora_config(table);
  const AdapterRanksTable& r = table.ranks;
  const std::array ranks{r.q, r.k, r.v, r.o, r.gate, r.up, r.down};
  for (std::size_t i = 0; i < ranks.size(); ++i)
    if (ranks[i] && lora.targets[i].rank == 0)
      error("ranks", fmt::format("'adapter.ranks.{0}' is set, but 'adapter.targets' lacks \"{0}\"",
                                 names_of<AdapterTarget>[i]));
}

void check_train_deck(TrainDeck& deck, const LoadedDeck& loaded, Diagnostics& diagnostics) {
  check_run_and_output(deck.run, deck.output, loaded, diagnostics);
  TrainCheck check(deck, loaded, diagnostics);
  check.source();
  check.adapter();
  check.tokenizer();
  check.objective();
  check.data();
  check.batch();
  check.numbers();
  check.schedule();
  check.parallel();
  check.parts();
}

}  // namespace kformer::Impl::schema
