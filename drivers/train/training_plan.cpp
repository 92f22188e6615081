// SPDX-License-Identifier: MIT
#include "train/training_plan.hpp"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include <algorithm>
#include <filesystem>
#include <limits>

#include "app/memory/scratch.hpp"
#include "kformer/load/llama_config.hpp"
#include "kformer/load/load_weights.hpp"
#include "language_model/model_files.hpp"
#include "learner/sampler_options.hpp"
#include "objective/objective.hpp"
#include "train/training_loop.hpp"

namespace kformer::drivers {

namespace {

std::unique_ptr<const Tokenizer> tokenizer_of(const TrainDeck& deck,
                                              const std::optional<Checkpoint>& checkpoint) {
  const TokenizerTable& t = deck.tokenizer;
  if (deck.data.format == DataFormat::tokens && !deck.samples) return nullptr;
  if (t.format == TokenizerFormat::byte || !t.path.empty()) return kformer::open_tokenizer(t.format, t.path);
  if (checkpoint) return open_tokenizer(t, *checkpoint);
  // Only synthetic data have no tokenizer of their own.
  return kformer::open_tokenizer(TokenizerFormat::byte, {});
}

bool too_many(std::int64_t a, std::int64_t b) {
  return b != 0 && a > std::numeric_limits<std::int64_t>::max() / b;
}

// Steps that learn from the same sequences.
std::int64_t updates_of(const TrainDeck& deck) { return deck.policy ? deck.policy->updates : 1; }

// The reference of an objective is not the model with which the training begins.
bool has_another_reference(const TrainDeck& deck) {
  return deck.adapter && !deck.adapter->path.empty() &&
         (deck.objective.kind == ObjectiveKind::dpo || (deck.policy && deck.policy->beta > 0));
}

std::int64_t steps_of(const TrainDeck& deck, const SequenceSource& data) {
  const BatchTable& b = deck.batch;
  if (deck.schedule.epochs && too_many(*deck.schedule.epochs, data.size()))
    throw DeckError(fmt::format("error: 'schedule.epochs' = {} of {} sequences are more than can be counted",
                                *deck.schedule.epochs, data.size()));
  const std::int64_t updates = updates_of(deck),
                     batches = deck.schedule.epochs ? *deck.schedule.epochs * data.size() / b.sequences : 0;
  if (too_many(batches, updates))
    throw DeckError(fmt::format(
        "error: {} batches with 'policy.updates' = {} are more steps than can be counted", batches, updates));
  const std::int64_t steps = deck.schedule.steps ? *deck.schedule.steps : batches * updates;
  if (steps == 0)
    throw NotSupported(
        fmt::format("kformer-train: {} epochs of {} sequences do not fill one step of {} sequences; set "
                    "schedule.steps, or a smaller batch.sequences",
                    *deck.schedule.epochs, data.size(), b.sequences));
  if (too_many(steps, b.sequences) || too_many(steps * b.sequences, b.seq_len))
    throw DeckError(fmt::format("error: {} steps of {} sequences of {} tokens are more than can be counted",
                                steps, b.sequences, b.seq_len));
  return steps;
}

// For `epochs`: the deck itself is checked where it names `steps`.
void check_ends(const ScheduleTable& schedule, std::int64_t steps) {
  const std::int64_t ends = schedule.warmup_steps + schedule.decay_steps.value_or(0);
  if (!schedule.epochs || ends <= steps) return;
  throw NotSupported(fmt::format(
      "kformer-train: schedule.warmup_steps{} = {} is more than the {} steps that schedule.epochs = {} "
      "makes; set a smaller one, or more epochs",
      schedule.decay_steps ? " + decay_steps" : "", ends, steps, *schedule.epochs));
}

TrainerOptions trainer_options(const TrainDeck& deck, std::int64_t steps) {
  const TrainOptimizerTable& o = deck.optimizer;
  TrainerOptions options;
  options.shape = {deck.batch.micro_batch, deck.batch.seq_len};
  options.layer.compute = deck.precision.compute;
  options.layer.batch_invariant = deck.precision.batch_invariant;
  options.layer.packed = deck.data.packing == Packing::best_fit;
  options.layer.accumulate = deck.batch.sequences > deck.batch.micro_batch;
  options.optimizer = {.beta1 = o.betas[0],
                       .beta2 = o.betas[1],
                       .eps = o.eps,
                       .weight_decay = o.weight_decay,
                       .max_norm = o.max_norm,
                       .states = o.states,
                       .master = o.master == MasterWeights::f32,
                       .loss_scaling = loss_scaling(deck.precision)};
  options.schedule = {.kind = deck.schedule.kind,
                      .learning_rate = o.lr,
                      .min_learning_rate = deck.schedule.min_lr,
                      .steps = steps,
                      .warmup_steps = deck.schedule.warmup_steps,
                      .decay_steps = deck.schedule.decay_steps.value_or(0)};
  if (deck.spikes)
    options.spikes = {
        .loss_z = deck.spikes->loss_z, .norm_z = deck.spikes->norm_z, .window = deck.spikes->window};
  check_ends(deck.schedule, steps);
  options.schedule.check();
  return options;
}

// The deck has refused what it asks for itself; an adapter of `adapter.path` may ask for the same.
LoraConfig adapters_of(const TrainDeck& deck, const TrainingPlan& plan) {
  if (!deck.adapter) return {};
  const LoraConfig lora = lora_config(*deck.adapter, plan.adapter ? &plan.adapter->lora() : nullptr);
  if (lora.magnitudes && deck.output.adapter_gguf)
    throw NotSupported(
        "kformer-train: the adapter of adapter.path has magnitudes (DoRA), which files of llama.cpp do not "
        "have; "
        "remove output.adapter_gguf");
  if (deck.policy && lora.dropout > 0)
    throw NotSupported(
        fmt::format("kformer-train: the adapter of adapter.path has a dropout of {}, which would make the "
                    "model that learns another one than the model that samples; set adapter.dropout = 0",
                    lora.dropout));
  return lora;
}

// Nothing stays quantised without adapters: it would not learn.
FrozenWeights frozen_weights_of(const TrainDeck& deck, const TrainingPlan& plan) {
  const bool keep = deck.adapter && deck.weights && deck.weights->keep_quantized;
  FrozenWeights frozen = frozen_weights(plan.checkpoint ? &*plan.checkpoint : nullptr, plan.task.config,
                                        deck.precision.weights, keep, deck.precision.storage);
  if (!frozen.formats.empty() && !deck.output.model.empty())
    throw NotSupported(fmt::format(
        "kformer-train: output.model merges the adapter into the weights, but these stay quantised ({}); set "
        "output.adapter, which kformer-generate adds to expanded weights, or weights.keep_quantized = false",
        format_text(frozen.formats)));
  return frozen;
}

std::string init_text(const InitTable& init) {
  return fmt::format("{}, std {}, seed {}", name_of(init.scheme), init.std, init.seed);
}

// A checkpoint of the run has neither the weights below adapters nor those of the reference.
std::string first_weights_of(const TrainDeck& deck, const TrainingPlan& plan) {
  if (!deck.adapter && !make_objective(deck)->needs_first_weights()) return {};
  return plan.checkpoint ? fingerprint_of(*plan.checkpoint) : init_text(*deck.init);
}

GeneratorOptions sampler_of(const TrainDeck& deck, const TrainingPlan& plan) {
  GeneratorOptions options =
      sampler_options(*deck.policy, deck.batch.sequences, plan.data.train->prompts()->report().longest);
  options.end_of_text = plan.encoder->end_of_text();
  options.sampling.seed = static_cast<std::uint64_t>(deck.run.seed);
  return options;
}

std::vector<std::string> notes_on(const TrainDeck& deck, const TrainingPlan& plan, const Tokenizer* tokenizer) {
  std::vector<std::string> notes;
  if (tokenizer != nullptr && plan.checkpoint && tokenizer->vocab_size() < plan.model.vocab_size)
    notes.push_back(fmt::format(
        "the tokenizer has {} tokens, but the model of [weights] has {}; use that model's tokenizer",
        tokenizer->vocab_size(), plan.model.vocab_size));
  if (plan.checkpoint && plan.model.max_position_embeddings < deck.batch.seq_len)
    notes.push_back(
        fmt::format("batch.seq_len = {} is more than max_position_embeddings = {} of the model of [weights]",
                    deck.batch.seq_len, plan.model.max_position_embeddings));
  if (!deck.output.model.empty() && !plan.tokenizer_files.note.empty())
    notes.push_back(plan.tokenizer_files.note);
  return notes;
}

std::string ranks_text(const ParallelTable& t, std::int64_t micro_batches) {
  std::string divided;
  if (t.context > 1) divided += fmt::format(" x {} that divide the tokens", t.context);
  if (t.tensor > 1)
    divided +=
        fmt::format(" x {} that divide the model{}", t.tensor, t.sequence ? " and the tokens of states" : "");
  if (t.pipeline > 1)
    divided += fmt::format(" x {} that divide the layers ({}{})", t.pipeline, name_of(t.schedule),
                           t.parts > 1 ? fmt::format(", {} parts each", t.parts) : std::string());
  return fmt::format("ranks       {}{}, with {} micro-batches of a step each, ZeRO {}, sums in {} order\n",
                     t.data, divided, micro_batches, t.zero, name_of(t.order));
}

std::string model_text(const LanguageModelTable& model) {
  return fmt::format("{} layers of {}, {} heads, {} kv heads, intermediate {}, vocabulary {}",
                     model.num_hidden_layers, model.hidden_size, model.num_attention_heads,
                     model.num_key_value_heads, model.intermediate_size, model.vocab_size);
}

}  // namespace

TrainingPlan plan_training(const TrainDeck& deck) {
  TrainingPlan plan;
  if (deck.weights) plan.checkpoint = open_checkpoint(*deck.weights);
  plan.model = plan.checkpoint ? plan.checkpoint->model() : *deck.model;
  plan.task.config = llama_config(plan.model);
  if (deck.parallel)
    require_divided(*deck.parallel, plan.model, plan.checkpoint ? &*plan.checkpoint : nullptr, "kformer-train");
  if (deck.adapter && !deck.adapter->path.empty())
    plan.adapter = open_adapter(deck.adapter->path, plan.task.config);
  auto tokenizer = tokenizer_of(deck, plan.checkpoint);
  plan.data = open_training_data(deck, plan.model, tokenizer.get());
  plan.tokenizer_files = tokenizer_files(deck.tokenizer, plan.checkpoint ? &*plan.checkpoint : nullptr);
  plan.notes = notes_on(deck, plan, tokenizer.get());
  if (tokenizer)
    plan.encoder = std::make_unique<PromptEncoder>(std::move(tokenizer), deck.tokenizer, plan.model);
  plan.steps = steps_of(deck, *plan.data.train);
  plan.task.dtype = deck.precision.storage;
  plan.task.trainer = trainer_options(deck, plan.steps);
  plan.task.trainer.layer.lora = adapters_of(deck, plan);
  if (deck.adapter) plan.task.trainer.dropout_seed = static_cast<std::uint64_t>(deck.adapter->seed);
  plan.task.logits = deck.samples || (deck.adapter && !deck.output.model.empty());
  plan.task.saves_weights = !deck.output.model.empty();
  if (deck.policy) {
    plan.task.sampler = sampler_of(deck, plan);
    plan.task.reference = deck.policy->keeps_first_weights(deck.adapter.has_value());
  }
  FrozenWeights frozen = frozen_weights_of(deck, plan);
  plan.task.trainer.layer.formats = std::move(frozen.formats);
  plan.task.staging_bytes = frozen.staging_bytes;
  plan.first_weights = first_weights_of(deck, plan);
  if (deck.checkpoint)
    plan.task.checkpoints = CheckpointOptions{.folder = std::filesystem::absolute(deck.checkpoint->folder),
                                              .keep = deck.checkpoint->keep,
                                              .background = deck.checkpoint->background};
  return plan;
}

namespace {

void add_policy(const TrainDeck& deck, std::map<std::string, std::string>& settings) {
  const PolicyTable& policy = *deck.policy;
  settings["policy.loss"] = name_of(policy.loss);
  settings["policy.scale_rewards"] = name_of(policy.scale_rewards);
  settings["policy.mask_truncated"] = policy.mask_truncated ? "true" : "false";
  settings["policy.max_new_tokens"] = std::to_string(policy.max_new_tokens);
  settings["policy.top_k"] = std::to_string(policy.top_k);
  for (const auto& [key, value] : {std::pair{"epsilon_low", policy.epsilon_low},
                                   {"epsilon_high", policy.epsilon_high},
                                   {"delta", policy.delta},
                                   {"beta", policy.beta},
                                   {"temperature", policy.temperature},
                                   {"top_p", policy.top_p}})
    settings[fmt::format("policy.{}", key)] = fmt::format("{}", value);
  settings["rewards"] = std::to_string(deck.rewards.size());
  for (std::size_t i = 0; i < deck.rewards.size(); ++i) {
    const RewardTable& reward = deck.rewards[i];
    const std::map<std::string, std::string> keys{{"kind", std::string(name_of(reward.kind))},
                                                  {"weight", fmt::format("{}", reward.weight)},
                                                  {"field", reward.field},
                                                  {"ignore_case", reward.ignore_case ? "true" : "false"},
                                                  {"pattern", reward.pattern},
                                                  {"target", std::to_string(reward.target)},
                                                  {"unit", std::string(name_of(reward.unit))},
                                                  {"command", nlohmann::json(reward.command).dump()}};
    for (const auto& [key, value] : keys) settings[fmt::format("reward[{}].{}", i, key)] = value;
  }
}

}  // namespace

std::map<std::string, std::string> identity_of(const TrainDeck& deck, const TrainingPlan& plan) {
  const WeightFormats& formats = plan.task.trainer.layer.formats;
  std::map<std::string, std::string> identity{
      {"precision.storage", std::string(name_of(deck.precision.storage))},
      {"optimizer.states", std::string(name_of(deck.optimizer.states))},
      {"optimizer.master", std::string(name_of(deck.optimizer.master))},
      {"batch.seq_len", std::to_string(deck.batch.seq_len)},
      {"batch.sequences", std::to_string(deck.batch.sequences)},
      {"data", plan.data.train->fingerprint()},
      {"data.shuffle", deck.data.shuffle ? "true" : "false"},
      {"run.seed", std::to_string(deck.run.seed)},
      {"adapter", adapter_text(plan.task.trainer.layer.lora)},
      {"quantised weights", formats.empty() ? "nothing" : format_text(formats)}};
  if (!plan.first_weights.empty()) identity["first weights"] = plan.first_weights;
  if (deck.objective.kind == ObjectiveKind::dpo) {
    identity["objective.kind"] = name_of(deck.objective.kind);
    identity["objective.loss"] = name_of(*deck.objective.loss);
  }
  if (deck.policy) {
    identity["objective.kind"] = name_of(deck.objective.kind);
    identity["policy.group_size"] = std::to_string(deck.policy->group_size);
    identity["policy.updates"] = std::to_string(deck.policy->updates);
  }
  // The others do not change numbers.
  const auto config = nlohmann::json::parse(model_config_json(plan.model));
  for (const auto& [key, value] : config.items())
    if (key != "architectures" && key != "max_position_embeddings" && !key.ends_with("_token_id"))
      identity["model." + key] = value.dump();
  return identity;
}

std::map<std::string, std::string> contents_of(const TrainingPlan& plan) {
  return {{"data.train", plan.data.train->fingerprint()},
          {"data.validation", plan.data.validation ? plan.data.validation->fingerprint() : ""},
          {"weights.path", plan.checkpoint ? contents_of(*plan.checkpoint) : ""},
          {"adapter.path", plan.adapter ? contents_of(*plan.adapter, plan.task.config) : ""},
          {"tokenizer.path", plan.encoder ? plan.encoder->fingerprint() : ""}};
}

std::map<std::string, std::string> settings_of(const TrainDeck& deck) {
  const TrainOptimizerTable& o = deck.optimizer;
  const ScheduleTable& s = deck.schedule;
  const TrainPrecisionTable& p = deck.precision;
  const auto text = [](const auto& value) { return value ? std::to_string(*value) : "none"; };
  const SpikesTable spikes = deck.spikes.value_or(SpikesTable{.loss_z = 0, .norm_z = 0});
  std::map<std::string, std::string> settings{
      {"optimizer.lr", fmt::format("{}", o.lr)},
      {"adapter.learning_rate_ratio", fmt::format("{}", deck.adapter ? deck.adapter->learning_rate_ratio : 1)},
      {"adapter.dropout",
       deck.adapter && deck.adapter->dropout ? fmt::format("{}", *deck.adapter->dropout) : "none"},
      {"adapter.seed", deck.adapter ? std::to_string(deck.adapter->seed) : "none"},
      {"optimizer.betas", fmt::format("{}, {}", o.betas[0], o.betas[1])},
      {"optimizer.eps", fmt::format("{}", o.eps)},
      {"optimizer.weight_decay", fmt::format("{}", o.weight_decay)},
      {"optimizer.max_norm", fmt::format("{}", o.max_norm)},
      {"schedule.kind", std::string(name_of(s.kind))},
      {"schedule.steps", text(s.steps)},
      {"schedule.epochs", text(s.epochs)},
      {"schedule.warmup_steps", std::to_string(s.warmup_steps)},
      {"schedule.min_lr", fmt::format("{}", s.min_lr)},
      {"schedule.decay_steps", text(s.decay_steps)},
      {"spikes.loss_z", fmt::format("{}", spikes.loss_z)},
      {"spikes.norm_z", fmt::format("{}", spikes.norm_z)},
      {"spikes.window", std::to_string(spikes.window)},
      {"batch.micro_batch", std::to_string(deck.batch.micro_batch)},
      {"precision.loss_scale", std::string(name_of(p.loss_scaling))},
      {"precision.initial_loss_scale", fmt::format("{}", p.initial_loss_scale)},
      {"precision.growth_factor", fmt::format("{}", p.growth_factor)},
      {"precision.backoff_factor", fmt::format("{}", p.backoff_factor)},
      {"precision.growth_interval", std::to_string(p.growth_interval)},
      {"precision.least_loss_scale", fmt::format("{}", p.least_loss_scale)},
      {"precision.greatest_loss_scale", fmt::format("{}", p.greatest_loss_scale)},
      {"precision.compute", std::string(name_of(p.compute))},
      {"precision.batch_invariant", p.batch_invariant ? "true" : "false"}};
  if (deck.policy) add_policy(deck, settings);
  if (deck.objective.kind == ObjectiveKind::dpo) {
    settings["objective.beta"] = fmt::format("{}", *deck.objective.beta);
    settings["objective.label_smoothing"] = fmt::format("{}", *deck.objective.label_smoothing);
  }
  return settings;
}

std::string plan_text(const TrainDeck& deck, const TrainingPlan& plan) {
  const BatchTable& b = deck.batch;
  const std::int64_t batches = plan.steps / updates_of(deck);
  const double epochs =
      static_cast<double>(batches * b.sequences) / static_cast<double>(plan.data.train->size());
  std::string text = fmt::format("model       {} parameters: {}\n", plan.task.config.model_parameter_count(),
                                 model_text(plan.model));
  text += fmt::format("weights     {}\n",
                      plan.checkpoint ? plan.checkpoint->folder().string() : init_text(*deck.init));
  if (const WeightFormats& formats = plan.task.trainer.layer.formats; !formats.empty())
    text +=
        fmt::format("quantised   {} of {} projections stay so: {}\n", formats.size(),
                    plan.task.config.num_hidden_layers * static_cast<std::int64_t>(names_of<Projection>.size()),
                    format_text(formats));
  if (const LoraConfig& lora = plan.task.trainer.layer.lora; lora.any())
    text += fmt::format("adapter     {} parameters, rank x scale: {}{}\n",
                        adapter_parameter_count(plan.task.config, lora), adapter_text(lora),
                        lora.dropout > 0 ? fmt::format(", dropout {}", lora.dropout) : "");
  if (const std::string words = make_objective(deck)->description(); !words.empty())
    text += fmt::format("objective   {}\n", words);
  if (has_another_reference(deck))
    text +=
        "  note: the reference is the model without the adapter of adapter.path; that of TRL would have a "
        "frozen "
        "copy of it\n";
  text += fmt::format("data        {}\n", plan.data.train->description());
  for (const std::string& note : plan.notes) text += fmt::format("  note: {}\n", note);
  if (plan.data.validation) text += fmt::format("validation  {}\n", plan.data.validation->description());
  text +=
      fmt::format("steps       {} of {} sequences of {} tokens, {:.3g} epochs, {:.4g} tokens\n", plan.steps,
                  b.sequences, b.seq_len, epochs, static_cast<double>(plan.steps * b.sequences * b.seq_len));
  if (deck.parallel) text += ranks_text(*deck.parallel, micro_batches_of_rank(deck).each());
  text += fmt::format("optimizer   lr {} ({}, {} steps of warm-up), {} in {}\n", deck.optimizer.lr,
                      name_of(deck.schedule.kind), deck.schedule.warmup_steps, "AdamW",
                      name_of(deck.precision.storage));
  return text;
}

std::size_t TrainingPlan::scratch_per_thread() const {
  return drivers::scratch_per_thread(task.config, !task.trainer.layer.formats.empty());
}

std::optional<std::size_t> memory_limit(const TrainDeck& deck, std::optional<std::size_t> free,
                                        std::size_t scratch) {
  require_scratch(scratch, free);
  if (free) *free -= scratch;
  const std::optional<std::size_t> budget = deck.memory.budget_bytes();
  return budget && free ? std::min(*budget, *free) : budget ? budget : free;
}

std::string memory_text(const TrainDeck& deck, const MemoryDecision& memory, double recompute_seconds,
                        const std::optional<std::size_t>& limit, std::size_t scratch) {
  std::string text = fmt::format("memory      {} ({})", format_bytes(memory.forecast->peak_total()),
                                 bytes_by_class(*memory.forecast));
  if (memory.bytes_in_space != memory.forecast->peak_total())
    text += fmt::format(", {} in device memory", format_bytes(memory.bytes_in_space));
  if (limit) text += fmt::format(" of {}", format_bytes(*limit));
  if (scratch > 0) text += fmt::format("\nscratch     {} of the kernels, beside it", format_bytes(scratch));
  text += fmt::format("\nrecompute   {}: {}; about {:.3g} ms of each micro-batch\n",
                      name_of(deck.memory.recompute), schedule_text(memory.schedule), 1e3 * recompute_seconds);
  return text;
}

}  // namespace kformer::drivers
