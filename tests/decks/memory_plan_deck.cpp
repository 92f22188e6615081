// SPDX-License-Identifier: MIT
#include "decks/memory/memory_plan_deck.hpp"

#include <nlohmann/json.hpp>

#include <string>
#include <vector>

#include "deck_case.hpp"

namespace {

using namespace kformer;
using namespace kformer::Testing;

const std::string header = header_of("memory_plan");
const std::string model = three_layers + "vocab_size = 32\nmax_position_embeddings = 64\n";

struct MemoryPlanDecks : DeckCase<load_memory_plan_deck> {
  std::vector<MemoryCase> cases(const std::string& text) const {
    const auto deck = load(text);
    return expand(deck.sweep, *deck.model, built);
  }
};

}  // namespace

BOOST_FIXTURE_TEST_SUITE(memory_plan_deck, MemoryPlanDecks)

BOOST_AUTO_TEST_CASE(a_minimal_deck_plans_one_sequence_of_the_trained_length) {
  const auto deck = load(header + model);
  BOOST_TEST_REQUIRE(deck.model.has_value());
  BOOST_TEST(!deck.weights.has_value());
  BOOST_TEST(deck.model->head_dim == 2);
  BOOST_TEST(deck.model->num_hidden_layers == 3);
  BOOST_TEST(!deck.model->tie_word_embeddings);
  BOOST_TEST(deck.plan.device_bytes == 0);
  const auto all = cases(header + model);
  BOOST_TEST_REQUIRE(all.size() == 1u);
  BOOST_TEST((all[0] == MemoryCase{"openmp", PlanPurpose::generate, DType::f32, WeightStorage::same,
                                   KvCacheKind::contiguous, 512, 1, 64, Recompute::none}));
}

BOOST_AUTO_TEST_CASE(axes_vary_from_the_first_to_the_last) {
  const auto all =
      cases(header + model + "[sweep]\ndtype = [\"f32\", \"bf16\"]\nbatch = [1, 8]\ncontext = [16, 32, 0]\n");
  BOOST_TEST_REQUIRE(all.size() == 12u);
  BOOST_TEST((all[0].context == 16 && all[1].context == 32 && all[2].context == 64));
  BOOST_TEST((all[2].batch == 1 && all[3].batch == 8));
  BOOST_TEST((all[5].dtype == DType::f32 && all[6].dtype == DType::bf16));
}

BOOST_AUTO_TEST_CASE(training_has_no_cache) {
  const auto all = cases(header + model +
                         "[sweep]\npurpose = [\"generate\", \"train\"]\nkv_cache = [\"paged\", \"int8\"]\n"
                         "prefill_chunk = [0, 16]\n");
  BOOST_TEST_REQUIRE(all.size() == 5u);
  BOOST_TEST((all.back() == MemoryCase{"openmp", PlanPurpose::train, DType::f32, WeightStorage::same,
                                       KvCacheKind::none, 0, 1, 64, Recompute::pointwise}));
}

BOOST_AUTO_TEST_CASE(policies_of_recomputation_are_for_training) {
  const auto all = cases(header + model +
                         "[sweep]\npurpose = [\"generate\", \"train\"]\nbatch = [1, 2]\n"
                         "recompute = [\"none\", \"nested\", \"auto\"]\n");
  BOOST_TEST_REQUIRE(all.size() == 8u);
  BOOST_TEST((all[0].recompute == Recompute::none && all[1].recompute == Recompute::none));
  BOOST_TEST((all[2].recompute == Recompute::none && all[2].batch == 1));
  BOOST_TEST((all[4].recompute == Recompute::automatic && all[4].batch == 1));
  BOOST_TEST((all[5].recompute == Recompute::none && all[5].batch == 2));
}

BOOST_AUTO_TEST_CASE(bytes_are_numbers_or_texts_with_a_unit) {
  BOOST_TEST(!load(header + model).memory.budget_bytes().has_value());
  const auto deck = load(header + model + "[memory]\nbudget = \"1.5 GiB\"\n");
  BOOST_TEST(deck.memory.budget_bytes().value() == 3ull << 29);
  BOOST_TEST(contains(
      faults(header + model + "[memory]\nbudget = \"8 gibs\"\n"),
      "deck.toml:12:10: error: 'memory.budget' must be a number of bytes, or a text such as \"80GB\" or "
      "\"74.5GiB\", got string \"8 gibs\""));
  BOOST_TEST(load(header + model, {"memory.budget=8000"}).memory.budget_bytes().value() == 8000u);
  BOOST_TEST(load(header + model, {"memory.budget=\"\""}).memory.budget.empty());
  const auto device = load(header + model, {"plan.device_bytes=74.5GiB"});
  BOOST_TEST(device.plan.device_bytes == 149ll << 29);
  BOOST_TEST(contains(device.record.resolved, "device_bytes = 79993765888\n"));
  BOOST_TEST(contains(faults(header + model, {"plan.device_bytes=-1"}),
                      "'plan.device_bytes' must be a number of bytes"));
  BOOST_TEST(contains(faults(header + model, {"plan.device_bytes=80 GX"}), "got string \"80 GX\""));
  // Other numbers have no units.
  BOOST_TEST(contains(faults(header + model, {"run.threads=4B"}), "'run.threads' must be an integer"));
}

BOOST_AUTO_TEST_CASE(equal_cases_are_one) {
  BOOST_TEST(cases(header + model + "[sweep]\ncontext = [0, 64, 65]\n").size() == 2u);
}

BOOST_AUTO_TEST_CASE(a_published_configuration_lies_below_the_deck) {
  put_contents(directory / "config.json",
               R"({"model_type": "qwen3", "hidden_size": 64, "num_attention_heads": 4, "num_key_value_heads": 2,
                   "head_dim": 32, "intermediate_size": 128, "num_hidden_layers": 5, "vocab_size": 100,
                   "max_position_embeddings": 2048, "tie_word_embeddings": true, "eos_token_id": [7, 8]})");
  const std::string config = "[model]\nconfig = \"config.json\"\nnum_hidden_layers = 2\n";
  const auto deck = load(header + config);
  BOOST_TEST(deck.model->num_hidden_layers == 2);
  BOOST_TEST(deck.model->head_dim == 32);
  BOOST_TEST(deck.model->tie_word_embeddings);
  BOOST_TEST(deck.model->qk_norm);
  BOOST_TEST((deck.model->eos_token_ids == std::vector<std::int64_t>{7, 8}));
  BOOST_TEST(load(deck.record.resolved).record.resolved == deck.record.resolved);

  put_contents(directory / "config.json", "{");
  BOOST_TEST(contains(faults(header + config), "deck.toml:4:10: error: "));
  BOOST_TEST(
      contains(faults(header + "[model]\nconfig = \"none.json\"\n"), "deck.toml:4:10: error: cannot read"));
}

BOOST_AUTO_TEST_CASE(what_follows_from_keys_follows_from_those_of_the_deck) {
  put_contents(directory / "config.json",
               R"({"model_type": "llama", "hidden_size": 64, "num_attention_heads": 4, "intermediate_size": 128,
                   "num_hidden_layers": 5, "vocab_size": 100, "max_position_embeddings": 2048})");
  const std::string config = header + "[model]\nconfig = \"config.json\"\n";
  BOOST_TEST(load(config).model->head_dim == 16);
  BOOST_TEST(load(config + "hidden_size = 32\n").model->head_dim == 8);
  const auto deck = load(config + "num_attention_heads = 2\n");
  BOOST_TEST(deck.model->head_dim == 32);
  BOOST_TEST(deck.model->num_key_value_heads == 2);
  BOOST_TEST(contains(faults(config + "num_key_value_heads = 3\n"),
                      "deck.toml:5:23: error: 'model.num_key_value_heads' = 3 does not divide"));
}

BOOST_AUTO_TEST_CASE(a_checkpoint_says_its_model) {
  const auto deck = load(header + "[weights]\npath = \"model.gguf\"\n");
  BOOST_TEST(!deck.model.has_value());
  BOOST_TEST(deck.weights->path == directory / "model.gguf");
}

BOOST_AUTO_TEST_CASE(there_is_one_model) {
  BOOST_TEST(contains(faults(header), "deck.toml:1:1: error: no model to plan for; add [model] or [weights]"));
  BOOST_TEST(contains(faults(header + model + "[weights]\npath = \"x\"\n"),
                      "[model] and [weights] both define the model"));
}

BOOST_AUTO_TEST_CASE(a_model_is_complete_and_sound) {
  const std::string missing = faults(header + "[model]\nhidden_size = 8\nvocab_size = 0\n");
  BOOST_TEST(contains(
      missing, "deck.toml:3:2: error: missing key 'num_hidden_layers' in [model]; set it, or set 'config'"));
  BOOST_TEST(contains(missing, "missing key 'max_position_embeddings' in [model]"));
  BOOST_TEST(contains(missing, "deck.toml:5:14: error: 'model.vocab_size' must be an integer in [1, "));
  BOOST_TEST(!contains(missing, "missing key 'vocab_size'"));
  BOOST_TEST(contains(
      faults(header + model, {"model.num_key_value_heads=3"}),
      "--set[1]:1:27: error: 'model.num_key_value_heads' = 3 does not divide num_attention_heads = 4"));
  BOOST_TEST(contains(faults(header + model, {"model.eos_token_id=32"}),
                      "'model.eos_token_id' = 32 is not below vocab_size = 32"));
}

BOOST_AUTO_TEST_CASE(contradictions_are_reported_with_their_place) {
  BOOST_TEST(
      contains(faults(header + model + "[sweep]\nkv_cache = [\"paged\", \"window\", \"heavy_hitters\"]\n"),
               "deck.toml:12:12: error: 'sweep.kv_cache' = \"window\" needs 'plan.window' > 0"));
  BOOST_TEST(contains(
      faults(header + model + "[sweep]\nkv_cache = \"heavy_hitters\"\n[plan]\nbudget = 8\nrecent = 9\n"),
      "deck.toml:15:10: error: 'plan.recent' = 9 is more than 'plan.budget' = 8"));
  BOOST_TEST(contains(faults(header + model + "[sweep]\npurpose = \"train\"\nweights = [\"same\", \"q8_0\"]\n"),
                      "deck.toml:13:11: error: 'sweep.weights' = \"q8_0\" cannot be trained"));
  BOOST_TEST(contains(faults(header + model + "[sweep]\nmode = \"zip\"\nbatch = [1, 2]\ncontext = [1, 2, 3]\n"),
                      "'batch' has 2 and 'context' has 3"));
  BOOST_TEST(contains(faults(header + model + "[sweep]\nexecution_space = [\"all\", \"cuda\"]\n"),
                      "\"all\" or \"default\" with other values"));
  BOOST_TEST(
      contains(faults(header + model + "[[sweep.exclude]]\nbatch = 1\n"), "every case of [sweep] is excluded"));
  BOOST_TEST(contains(faults(header + model + "[timing]\nrepeats = 1\n"), "unknown table [timing]"));
}

BOOST_AUTO_TEST_CASE(the_context_of_the_model_is_divided_as_any_other) {
  const std::string trained = header + model + "[sweep]\npurpose = \"train\"\n[parallel]\ncontext = 2\n",
                    odd = "model.max_position_embeddings=66";
  BOOST_TEST(faults(trained) == "no fault");
  BOOST_TEST(contains(faults(trained, {odd}),
                      "'sweep.context': 66 tokens are no multiple of 4, two chunks for "
                      "each of the 'parallel.context' = 2 ranks"));
  BOOST_TEST(faults(trained, {odd, "sweep.context=64"}) == "no fault");
  const std::string shared =
      header + model + "[sweep]\npurpose = \"train\"\n[parallel]\ntensor = 2\nsequence = true\n";
  BOOST_TEST(faults(shared) == "no fault");
  BOOST_TEST(
      contains(faults(shared, {"model.max_position_embeddings=65"}),
               "'sweep.batch' = 1 sequences of 65 tokens are not divided by the 'parallel.tensor' = 2 ranks"));
}

BOOST_AUTO_TEST_CASE(a_rank_that_is_alone_divides_nothing) {
  const std::string trained = header + model + "[sweep]\npurpose = \"train\"\n[parallel]\nzero = 1\n";
  const auto warnings = load(trained).record.warnings;
  BOOST_TEST_REQUIRE(warnings.size() == 1u);
  BOOST_TEST(contains(warnings[0], "deck.toml:14:8: warning: 'parallel.zero' divides nothing with one rank"));
  BOOST_TEST(load(trained, {"parallel.data=2"}).record.warnings.empty());
}

BOOST_AUTO_TEST_CASE(states_of_8_bits_are_not_for_double) {
  const std::string trained =
      header + model + "[sweep]\npurpose = [\"generate\", \"train\"]\ndtype = [\"f32\", \"f64\"]\n";
  const std::string eight = "optimizer.states=int8";
  BOOST_TEST(faults(trained) == "no fault");
  BOOST_TEST(
      contains(faults(trained, {eight}),
               "deck.toml:13:9: error: 'sweep.dtype' = \"f64\" is not for 'optimizer.states' = \"int8\""));
  BOOST_TEST(faults(trained, {eight, "sweep.purpose=generate"}) == "no fault");
  BOOST_TEST(faults(trained, {eight, "sweep.dtype=f32"}) == "no fault");
}

BOOST_AUTO_TEST_CASE(excluded_cases_of_quantised_training_are_legal) {
  const auto all = cases(header + model +
                         "[sweep]\npurpose = [\"generate\", \"train\"]\nweights = [\"same\", \"q4_0\"]\n"
                         "[[sweep.exclude]]\npurpose = \"train\"\nweights = \"q4_0\"\n");
  BOOST_TEST(all.size() == 3u);
}

BOOST_AUTO_TEST_CASE(quantised_weights_are_trained_with_adapters) {
  const std::string quantised = "[sweep]\npurpose = \"train\"\nweights = [\"same\", \"nf4\"]\n";
  BOOST_TEST(cases(header + model + quantised + "[adapter]\n").size() == 2u);
  BOOST_TEST(contains(faults(header + model + quantised),
                      "'sweep.weights' = \"nf4\" cannot be trained; add [adapter]"));
}

BOOST_AUTO_TEST_CASE(a_policy_is_for_rewards_and_has_defaults) {
  const auto plain = load(header + model);
  BOOST_TEST(!plain.policy.has_value());
  BOOST_TEST(!plain.plan.batch_invariant);
  const std::string grpo = "[objective]\nkind = \"grpo\"\n";
  const auto deck = load(header + model + grpo);
  BOOST_TEST_REQUIRE(deck.policy.has_value());
  BOOST_TEST(deck.policy->group_size == 8);
  BOOST_TEST(deck.policy->longest_prompt == 0);
  BOOST_TEST(deck.plan.batch_invariant);
  BOOST_TEST(!load(header + model + grpo + "[plan]\nbatch_invariant = false\n").plan.batch_invariant);
  BOOST_TEST(contains(faults(header + model + "[policy]\ntop_k = 2\n"),
                      "[policy] is for 'objective.kind' = \"grpo\", not \"next_token\""));
}

BOOST_AUTO_TEST_CASE(excluded_trainings_of_an_objective_are_legal) {
  const std::string sweep =
      "[sweep]\npurpose = [\"generate\", \"train\"]\nbatch = [2, 3]\n"
      "[[sweep.exclude]]\npurpose = \"train\"\nbatch = 3\n[objective]\nkind = \"dpo\"\n";
  BOOST_TEST(cases(header + model + sweep).size() == 3u);
  BOOST_TEST(contains(faults(header + model + sweep, {"sweep.exclude=[]"}),
                      "'sweep.batch' = 3 must be even with 'objective.kind' = \"dpo\""));
}

BOOST_AUTO_TEST_CASE(the_resolved_deck_means_the_same) {
  const auto deck =
      load(header + model +
               "[sweep]\nkv_cache = [\"window\", \"heavy_hitters\"]\nweights = [\"same\", \"tq1_0\"]\n"
               "[[sweep.exclude]]\nweights = \"tq1_0\"\nkv_cache = \"window\"\n"
               "[plan]\nwindow = 16\nbudget = 8\nactivations = \"int8\"\n"
               "[optimizer]\nstates = \"int8\"\nmaster = \"none\"\n[memory]\nbudget = \"2GiB\"\n"
               "[objective]\nkind = \"grpo\"\n[policy]\nlongest_prompt = 7\ntop_k = 3\nbeta = 0.5\n",
           {"plan.device_bytes=80000000000", "model.rope_scaling.rope_type=llama3"});
  BOOST_TEST(deck.plan.cache.recent == 4);
  const auto again = load(deck.record.resolved);
  BOOST_TEST((again.run == deck.run));
  BOOST_TEST((again.output == deck.output));
  BOOST_TEST((again.model == deck.model));
  BOOST_TEST((again.weights == deck.weights));
  BOOST_TEST((again.sweep == deck.sweep));
  BOOST_TEST((again.plan == deck.plan));
  BOOST_TEST((deck.optimizer == PlanOptimizerTable{OptimizerStates::eight_bit, MasterWeights::none}));
  BOOST_TEST((again.optimizer == deck.optimizer));
  BOOST_TEST((again.objective == deck.objective));
  BOOST_TEST_REQUIRE(again.policy.has_value());
  BOOST_TEST((again.policy->top_k == 3 && again.policy->longest_prompt == 7));
  BOOST_TEST((again.policy == deck.policy));
  BOOST_TEST((again.memory == deck.memory));
  BOOST_TEST(again.record.resolved == deck.record.resolved);
  const auto by_weights = load(header + "[weights]\npath = \"m\"\nformat = \"gguf\"\n");
  BOOST_TEST((load(by_weights.record.resolved).weights == by_weights.weights));
}

BOOST_AUTO_TEST_CASE(the_deck_of_the_project_is_good) {
  const auto deck = load_memory_plan_deck({KFORMER_SOURCE_DIR "/inputs/memory-llama-3.1-8b.toml", {}});
  BOOST_TEST(expand(deck.sweep, *deck.model, built).size() == 24u);
  BOOST_TEST(deck.record.warnings.empty());
}

BOOST_AUTO_TEST_CASE(the_documentation_is_current) {
  check_documentation("memory_plan", "kformer-memory", describe_deck_markdown<MemoryPlanDeck>());
}

BOOST_AUTO_TEST_CASE(the_json_schema_knows_model_and_axes) {
  const auto schema = nlohmann::json::parse(describe_deck_json_schema<MemoryPlanDeck>());
  const auto& tables = schema.at("properties");
  BOOST_TEST(tables.at("model").at("properties").at("num_hidden_layers").at("minimum") == 1);
  BOOST_TEST(!tables.at("model").contains("required"));
  BOOST_TEST(tables.at("sweep").at("properties").at("weights").at("oneOf").at(0).at("enum").at(4) == "tq2_0");
}

BOOST_AUTO_TEST_SUITE_END()
