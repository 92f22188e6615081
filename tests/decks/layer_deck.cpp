// SPDX-License-Identifier: MIT
#include <nlohmann/json.hpp>

#include <filesystem>
#include <set>
#include <string>
#include <vector>

#include "layer_decks.hpp"

namespace {

using namespace kformer;
using namespace kformer::Testing;

void check_equal(const LayerSweepDeck& a, const LayerSweepDeck& b) {
  BOOST_TEST((a.run == b.run));
  BOOST_TEST((a.timing == b.timing));
  BOOST_TEST((a.profile == b.profile));
  BOOST_TEST((a.output == b.output));
  BOOST_TEST((a.model == b.model));
  BOOST_TEST((a.sweep == b.sweep));
  BOOST_TEST((a.check == b.check));
  BOOST_TEST((a.tensors == b.tensors));
}

}  // namespace

BOOST_FIXTURE_TEST_SUITE(layer_deck, LayerDecks)

BOOST_AUTO_TEST_CASE(a_minimal_deck_gets_the_defaults) {
  const auto deck = load(good);
  BOOST_TEST(deck.run.name == "deck");
  BOOST_TEST(deck.model.num_key_value_heads == 4);
  BOOST_TEST(deck.model.head_dim == 16);
  BOOST_TEST(deck.model.known.count("rope_theta") == 1u);
  BOOST_TEST(deck.sweep.axes.batch == std::vector<std::int64_t>{1}, boost::test_tools::per_element());
  BOOST_TEST((deck.sweep.axes.direction == std::vector{Direction::forward, Direction::backward}));
  BOOST_TEST((deck.sweep.axes.impl == std::vector{AttentionAlgorithm::standard}));
  BOOST_TEST((deck.timing == TimingTable{}));
  BOOST_TEST((deck.check == CheckTable{}));
  BOOST_TEST(!deck.tensors.has_value());
  BOOST_TEST(deck.record.warnings.empty());
}

BOOST_AUTO_TEST_CASE(every_key_reaches_its_member) {
  const auto deck = load(header + R"(
[run]
name = "n"
seed = 9223372036854775807
threads = 3
on_oom = "abort"
walltime_s = 4
[timing]
warmup = 5
repeats = 6
min_time_s = 0.5
max_time_s = 7
[profile]
kernels = true
memory = "off"
[output]
file = "f.h5"
overwrite = true
compression = 8
[model]
model_type = "qwen2"
hidden_size = 96
num_attention_heads = 6
num_key_value_heads = 3
head_dim = 20
intermediate_size = 128
rms_norm_eps = 1e-6
hidden_act = "silu"
rope_theta = 5e5
attention_bias = true
sliding_window = 11
[model.rope_scaling]
rope_type = "llama3"
factor = 2
low_freq_factor = 1.5
high_freq_factor = 2.5
original_max_position_embeddings = 64
[sweep]
mode = "zip"
execution_space = "serial"
dtype = ["f16", "f64"]
direction = "backward"
batch = [2, 3]
seq_len = 12
impl = "flash"
[[sweep.exclude]]
dtype = "f16"
batch = [2, 3]
[check]
reference = "none"
fail = false
max_seq_len = 13
[precision]
compute = "full"
master = "none"
loss_scaling = "dynamic"
initial_loss_scale = 14
growth_factor = 1.5
backoff_factor = 0.25
growth_interval = 15
least_loss_scale = 0.5
greatest_loss_scale = 16
[optimizer]
learning_rate = 0.125
beta1 = 0.75
beta2 = 0.875
eps = 1e-7
weight_decay = 0.0625
max_norm = 17
states = "int8"
)");
  BOOST_TEST((deck.run == RunTable{"n", INT64_MAX, 3, OnOutOfMemory::abort, 4}));
  BOOST_TEST((deck.timing == TimingTable{5, 6, 0.5, 7}));
  BOOST_TEST((deck.profile == ProfileTable{true, MemoryProfile::off}));
  BOOST_TEST((deck.output == OutputTable{"f.h5", true, 8}));
  BOOST_TEST((deck.model.rope.scaling == RopeScaling{RopeType::llama3, 2, 1.5, 2.5, 64}));
  ModelTable model;
  model.model_type = ModelType::qwen2;
  model.hidden_size = 96;
  model.num_attention_heads = 6;
  model.num_key_value_heads = 3;
  model.head_dim = 20;
  model.intermediate_size = 128;
  model.rms_norm_eps = 1e-6;
  model.rope.theta = 5e5;
  model.rope.scaling = deck.model.rope.scaling;
  model.attention_bias = true;
  model.sliding_window = 11;
  model.known = deck.model.known;
  BOOST_TEST((deck.model == model));
  BOOST_TEST((deck.sweep.mode == SweepMode::zip));
  BOOST_TEST((deck.sweep.axes == LayerAxes{{"serial"},
                                           {DType::f16, DType::f64},
                                           {Direction::backward},
                                           {2, 3},
                                           {12},
                                           {AttentionAlgorithm::flash}}));
  BOOST_TEST((deck.sweep.exclude == std::vector<LayerAxes>{{{}, {DType::f16}, {}, {2, 3}, {}, {}}}));
  BOOST_TEST((deck.check == CheckTable{CheckReference::none, false, 13}));
  BOOST_TEST((deck.precision == PrecisionTable{{LossScalingRule::dynamic, 14, 1.5, 0.25, 15, 0.5, 16},
                                               Precision::full,
                                               MasterWeights::none}));
  BOOST_TEST(
      (deck.optimizer == OptimizerTable{0.125, 0.75, 0.875, 1e-7, 0.0625, 17, OptimizerStates::eight_bit}));
  check_equal(load(deck.record.resolved), deck);
}

BOOST_AUTO_TEST_CASE(resolving_twice_changes_nothing) {
  for (const auto& text :
       {good, with_tensors, with_tensors + "output = \"/x/y\"\n[model]\nrope_theta = 3e5\n"}) {
    const auto deck = load(text);
    const auto again = load(deck.record.resolved);
    BOOST_TEST(again.record.resolved == deck.record.resolved);
    check_equal(again, deck);
  }
}

BOOST_AUTO_TEST_CASE(the_shape_is_required_unless_it_comes_from_elsewhere) {
  BOOST_TEST(
      faults(header) ==
      "deck.toml:1:1: error: missing key 'hidden_size' in [model]; set it, set 'config', or add "
      "[tensors]\ndeck.toml:1:1: error: missing key 'num_attention_heads' in [model]; set it, set 'config', "
      "or add [tensors]\ndeck.toml:1:1: error: missing key 'intermediate_size' in [model]; set it, set "
      "'config', or add [tensors]\ndeck.toml:1:1: error: missing key 'seq_len' in [sweep]; set it, or add "
      "[tensors]");
  BOOST_TEST(contains(faults(header + "[model]\nhidden_size = 8\n"),
                      "deck.toml:3:2: error: missing key "
                      "'num_attention_heads' in [model]"));
  BOOST_TEST(!contains(faults(header + "[model]\nhidden_size = \"8\"\n"), "missing key 'hidden_size'"));
}

BOOST_AUTO_TEST_CASE(tensors_alone_are_enough) {
  const auto deck = load(header +
                         "[sweep]\nimpl = \"flash\"\ndtype = \"f64\"\n[tensors]\ninput = \"a/../in.st\"\n"
                         "output = \"/data/out.st\"\n[model]\nrope_theta = 7\n");
  BOOST_TEST_REQUIRE(deck.tensors.has_value());
  BOOST_TEST(deck.tensors->input == directory / "in.st");
  BOOST_TEST(deck.tensors->output == "/data/out.st");
  BOOST_TEST(deck.model.known == std::set<std::string>{"rope_theta"}, boost::test_tools::per_element());
  BOOST_TEST(deck.model.hidden_size == 0);
  BOOST_TEST(deck.sweep.axes.batch.empty());
  BOOST_TEST(deck.sweep.axes.seq_len.empty());
  const auto points = expand(deck.sweep, {"serial"});
  BOOST_TEST_REQUIRE(points.size() == 2u);
  BOOST_TEST(
      (points[1] == LayerCase{"serial", DType::f64, Direction::backward, 0, 0, AttentionAlgorithm::flash}));
}

BOOST_AUTO_TEST_CASE(tensors_name_their_input) {
  BOOST_TEST(faults(header + "[tensors]\noutput = \"x\"\n") ==
             "deck.toml:3:2: error: missing key 'input' in [tensors]: a path\n"
             "    3 | [tensors]\n"
             "      |  ^~~~~~~");
  BOOST_TEST(contains(faults(header + "[tensors]\ninput = \"\"\n"),
                      "'tensors.input' must be a path, got string \"\""));
}

BOOST_AUTO_TEST_CASE(tensor_paths_start_at_the_file_that_names_them) {
  std::filesystem::create_directory(directory / "sub");
  put_contents(directory / "sub/base.toml", "[tensors]\ninput = \"in.st\"\n");
  const auto deck = load(header + "include = \"sub/base.toml\"\n", {"tensors.output=out.st"});
  BOOST_TEST(deck.tensors->input == directory / "sub/in.st");
  BOOST_TEST(deck.tensors->output == directory / "out.st");
}

BOOST_AUTO_TEST_CASE(contradictions_in_the_model_are_shown_where_they_stand) {
  BOOST_TEST(faults(header + model + "num_key_value_heads = 3\n[sweep]\nseq_len = 1\n") ==
             "deck.toml:7:23: error: 'model.num_key_value_heads' = 3 does not divide num_attention_heads = 4\n"
             "    7 | num_key_value_heads = 3\n"
             "      |                       ^");
  BOOST_TEST(contains(faults(good, {"model.head_dim=15"}),
                      "--set[1]:1:16: error: 'model.head_dim' = 15 is odd, but RoPE rotates pairs of "
                      "features"));
  BOOST_TEST(
      contains(faults(good, {"model.hidden_size=60"}), "deck.toml:3:2: error: 'model.head_dim' = 15 is odd"));
  BOOST_TEST(contains(
      faults(good, {"model.hidden_size=66"}),
      "'model.head_dim' must be given, because num_attention_heads = 4 does not divide hidden_size = 66"));
  BOOST_TEST(faults(good, {"model.hidden_size=66", "model.head_dim=20"}) == "no fault");
  BOOST_TEST(contains(faults(good, {"model.attention_bias=true"}),
                      "'model.attention_bias' = true needs model_type = \"qwen2\", got \"llama\""));
  BOOST_TEST(faults(good, {"model.attention_bias=true", "model.model_type=qwen2"}) == "no fault");
  const std::string scaled = header + model +
                             "[model.rope_scaling]\nrope_type = \"llama3\"\nhigh_freq_factor = 1\n" +
                             "[sweep]\nseq_len = 1\n";
  BOOST_TEST(contains(faults(scaled),
                      "deck.toml:7:1: error: 'model.rope_scaling' needs high_freq_factor > "
                      "low_freq_factor, got 1 and 1"));
  BOOST_TEST(faults(scaled, {"model.rope_scaling.rope_type=none"}) == "no fault");
}

BOOST_AUTO_TEST_CASE(what_the_tensor_file_may_say_is_not_judged) {
  BOOST_TEST(faults(with_tensors + "[model]\nnum_attention_heads = 7\nhidden_size = 64\n") == "no fault");
  BOOST_TEST(contains(faults(with_tensors + "[model]\nnum_attention_heads = 7\nnum_key_value_heads = 2\n"),
                      "'model.num_key_value_heads' = 2 does not divide num_attention_heads = 7"));
}

BOOST_AUTO_TEST_CASE(a_completed_model_is_judged_as_a_whole) {
  ModelTable table;
  table.hidden_size = 64;
  table.num_attention_heads = 7;
  const auto faults = complete_model(table);
  BOOST_TEST_REQUIRE(faults.size() == 1u);
  BOOST_TEST(faults[0].key == "head_dim");
  BOOST_TEST(table.num_key_value_heads == 7);
}

BOOST_AUTO_TEST_CASE(contradictions_in_other_tables) {
  BOOST_TEST(contains(faults(good, {"timing.min_time_s=2", "timing.max_time_s=1"}),
                      "--set[2]:1:19: error: 'timing.max_time_s' = 1 is less than 'timing.min_time_s' = 2"));
  BOOST_TEST(contains(faults(good, {"run.name=a/b"}), "'run.name' must not contain '/'"));
  BOOST_TEST(contains(faults(good, {"optimizer.beta2=1"}),
                      "--set[1]:1:17: error: 'optimizer.beta2' must be less than 1, got 1"));
  BOOST_TEST(contains(faults(good, {"precision.backoff_factor=1"}),
                      "--set[1]:1:26: error: 'precision.backoff_factor' must be less than 1, got 1"));
  const std::string least = "precision.least_loss_scale=1e6", dynamic = "precision.loss_scaling=dynamic";
  BOOST_TEST(contains(faults(good, {least, dynamic}),
                      "'precision.initial_loss_scale' must lie between least_loss_scale = 1000000 and "
                      "greatest_loss_scale = 16777216, got 4096"));
  BOOST_TEST(faults(good, {least}) == "no fault");
  BOOST_TEST(contains(faults(good, {"precision.least_loss_scale=1e9"}),
                      "'precision.least_loss_scale' = 1000000000 is more than greatest_loss_scale = 16777216"));
  BOOST_TEST(contains(faults(good, {"precision.loss_scaling=statik"}), "did you mean 'static'?"));
}

BOOST_AUTO_TEST_CASE(numbers_that_float_does_not_hold_are_refused) {
  for (const char* key :
       {"optimizer.learning_rate", "optimizer.eps", "optimizer.weight_decay", "optimizer.max_norm",
        "precision.growth_factor", "model.rms_norm_eps", "model.rope_theta", "model.rope_scaling.factor",
        "model.rope_scaling.low_freq_factor", "model.rope_scaling.high_freq_factor"})
    BOOST_TEST(contains(faults(good, {std::string(key) + "=1e300"}), ", 1e+38], got float 1e+300"), key);
}

BOOST_AUTO_TEST_CASE(a_published_configuration_lies_below_the_deck) {
  put_contents(directory / "config.json", R"({
    "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 64, "intermediate_size": 172,
    "num_attention_heads": 8, "num_key_value_heads": 4, "rms_norm_eps": 1e-06, "rope_theta": 10000,
    "sliding_window": null, "hidden_act": "silu", "eos_token_id": [1, 2], "head_dim": null,
    "rope_scaling": {"factor": 32.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
                     "original_max_position_embeddings": 8192, "rope_type": "llama3", "unknown": 1}})");
  const std::string text =
      header + "[model]\nconfig = \"config.json\"\nnum_key_value_heads = 2\n[sweep]\nseq_len = 1\n";
  const auto deck = load(text);
  BOOST_TEST(deck.model.hidden_size == 64);
  BOOST_TEST(deck.model.num_key_value_heads == 2);
  BOOST_TEST(deck.model.head_dim == 8);
  BOOST_TEST(deck.model.rms_norm_eps == 1e-6);
  BOOST_TEST(deck.model.sliding_window == 0);
  BOOST_TEST((deck.model.rope.scaling == RopeScaling{RopeType::llama3, 32, 1, 4, 8192}));
  BOOST_TEST(deck.model.config == directory / "config.json");
  BOOST_TEST(!contains(deck.record.resolved, "config"));
  BOOST_TEST(load(text, {"model.rope_scaling.factor=2"}).model.rope.scaling.factor == 2.0);
  const auto known = load(with_tensors + "[model]\nconfig = \"config.json\"\n").model.known;
  BOOST_TEST(known.count("hidden_size") == 1u);
  BOOST_TEST(known.count("head_dim") == 0u);
}

BOOST_AUTO_TEST_CASE(published_configurations_have_habits) {
  const auto read = [&](const std::string& keys) {
    put_contents(
        directory / "config.json",
        R"({"hidden_size": 64, "num_attention_heads": 4, "num_key_value_heads": 2, "intermediate_size": 96)" +
            keys + "}");
    return load(header + "[model]\nconfig = \"config.json\"\n[sweep]\nseq_len = 1\n").model;
  };
  BOOST_TEST(read("").sliding_window == 0);
  BOOST_TEST(read(R"(, "model_type": "mistral", "sliding_window": 4096)").sliding_window == 4096);
  BOOST_TEST(read(R"(, "sliding_window": 4096, "use_sliding_window": false)").sliding_window == 0);
  BOOST_TEST(read(R"(, "sliding_window": 4096, "use_sliding_window": true)").sliding_window == 4096);
  const auto qwen2 = read(R"(, "model_type": "qwen2", "sliding_window": 4096)");
  BOOST_TEST(qwen2.sliding_window == 0);
  BOOST_TEST(qwen2.attention_bias);
  BOOST_TEST(!read("").attention_bias);
  BOOST_TEST((read(R"(, "rope_scaling": null)").rope.scaling == RopeScaling{}));
  const std::string llama3 =
      R"("factor": 32, "low_freq_factor": 1, "high_freq_factor": 4, "original_max_position_embeddings": 8192})";
  const RopeScaling scaled{RopeType::llama3, 32, 1, 4, 8192};
  BOOST_TEST((read(R"(, "rope_scaling": {"type": "llama3", )" + llama3).rope.scaling == scaled));
  BOOST_TEST((read(R"(, "rope_scaling": {"rope_type": "default"})").rope.scaling.rope_type == RopeType::none));
  const auto newer = read(R"(, "rope_parameters": {"rope_theta": 5e5, "rope_type": "llama3", )" + llama3);
  BOOST_TEST(newer.rope.theta == 5e5);
  BOOST_TEST((newer.rope.scaling == scaled));
}

BOOST_AUTO_TEST_CASE(families_of_published_configurations_have_defaults) {
  const auto read = [&](const std::string& keys) {
    put_contents(
        directory / "config.json",
        R"({"hidden_size": 64, "num_attention_heads": 32, "intermediate_size": 96, "num_hidden_layers": 2)" +
            keys + "}");
    return load(header + "[model]\nconfig = \"config.json\"\n[sweep]\nseq_len = 1\n").model;
  };
  BOOST_TEST(read("").rms_norm_eps == 1e-6);
  const auto mistral = read(R"(, "architectures": ["MistralForCausalLM"])");
  BOOST_TEST((mistral.model_type == ModelType::mistral));
  BOOST_TEST(mistral.sliding_window == 4096);
  BOOST_TEST(mistral.num_key_value_heads == 8);
  const std::string window = R"(, "model_type": "qwen3", "use_sliding_window": true, "sliding_window": 16)";
  BOOST_TEST(read(window + R"(, "max_window_layers": 2)").sliding_window == 0);
  const auto qwen3 = read(window + R"(, "max_window_layers": 0)");
  BOOST_TEST(qwen3.sliding_window == 16);
  BOOST_TEST(qwen3.head_dim == 128);
  // The format of its weights does not matter.
  BOOST_TEST(read(R"(, "quantization_config": {"quant_method": "gptq"})").hidden_size == 64);
}

BOOST_AUTO_TEST_CASE(unfit_configurations_are_errors) {
  const auto read = [&](const std::string& json) {
    put_contents(directory / "config.json", json);
    return faults(header + "[model]\nconfig = \"config.json\"\n[sweep]\nseq_len = 1\n");
  };
  const std::string start = R"({"hidden_size": 64, "num_attention_heads": 4, "intermediate_size": 96)";
  BOOST_TEST(read(start + R"(, "hidden_act": "gelu"})") ==
             "config.json: error: 'model.hidden_act' must be \"silu\", got string \"gelu\"");
  BOOST_TEST(read(start + R"(, "rope_scaling": {"type": "yarn"}})") ==
             "config.json: error: 'model.rope_scaling.rope_type' must be one of \"none\", \"llama3\", got "
             "string \"yarn\"");
  BOOST_TEST(
      contains(read(start + R"(, "rope_parameters": {"rope_type": "yarn", "factor": 4}})"),
               "'model.rope_scaling.rope_type' must be one of \"none\", \"llama3\", got string \"yarn\""));
  BOOST_TEST(read(start + R"(, "mlp_bias": true})") ==
             "config.json: error: 'mlp_bias' must be false, got true: biases of the MLP are not supported");
  BOOST_TEST(contains(read(start + R"(, "model_type": "gemma", "rope_theta": [1]})"),
                      "'model.rope_theta' must be a number"));
  BOOST_TEST(contains(read(start + R"(, "model_type": 3})"), "got integer 3"));
  BOOST_TEST(contains(read(start + R"(, "rope_scaling": "x"})"), "'model.rope_scaling' must be a table"));
  BOOST_TEST(
      contains(read(start + R"(, "head_dim": 18446744073709551615})"), "'model.head_dim' must be an integer"));
  BOOST_TEST(
      contains(read("{\n \"a\": ]}"), "config.json:2:7: error: the file is not JSON\n    2 |  \"a\": ]}\n"));
  BOOST_TEST(contains(read(start + R"(, "rope_theta": 1e999})"), "the file has a number beyond the range"));
  BOOST_TEST(contains(read(R"({"head_dim": )" + std::string(500000, '[')), "the file is nested too deeply"));
  BOOST_TEST(contains(read("[]"), "config.json: error: a model configuration is a JSON object"));
  BOOST_TEST(contains(faults(header + "[model]\nconfig = \"none.json\"\n"),
                      "deck.toml:4:10: error: cannot read 'none.json': No such file or directory"));
  BOOST_TEST(
      contains(faults(header + "[model]\nconfig = 3\n"), "'model.config' must be a path, got integer 3"));
}

BOOST_AUTO_TEST_CASE(the_documentation_is_current) {
  check_documentation("layer_sweep", "kformer-layer", describe_deck_markdown<LayerSweepDeck>());
}

BOOST_AUTO_TEST_CASE(the_json_schema_has_every_key_of_the_resolved_deck) {
  const auto schema = nlohmann::json::parse(describe_deck_json_schema<LayerSweepDeck>());
  const auto& tables = schema.at("properties");
  BOOST_TEST((schema.at("required") == nlohmann::json{"schema", "kind"}));
  BOOST_TEST(schema.at("additionalProperties") == false);
  BOOST_TEST((tables.at("timing").at("properties").at("repeats") ==
              nlohmann::json{{"type", "integer"},
                             {"minimum", 1},
                             {"maximum", 100000},
                             {"default", 10},
                             {"description", "samples per case; every sample is stored"}}));
  const auto& dtype = tables.at("sweep").at("properties").at("dtype").at("oneOf");
  BOOST_TEST((dtype.at(0).at("enum") == nlohmann::json{"f32", "bf16", "f16", "f64"}));
  BOOST_TEST(dtype.at(1).at("uniqueItems") == true);
  BOOST_TEST(tables.at("model").at("properties").at("rope_scaling").at("properties").contains("factor"));
  BOOST_TEST(
      tables.at("sweep").at("properties").at("exclude").at("items").at("properties").contains("seq_len"));
  BOOST_TEST((tables.at("tensors").at("required") == nlohmann::json{"input"}));
}

BOOST_AUTO_TEST_CASE(the_decks_of_the_repository_are_sound) {
  int decks = 0;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(KFORMER_SOURCE_DIR "/inputs")) {
    if (entry.path().extension() != ".toml" || !contains(contents_of(entry.path()), "\"layer_sweep\""))
      continue;
    BOOST_TEST_CONTEXT(entry.path()) {
      const auto deck = load_layer_deck({entry.path(), {}});
      BOOST_TEST(deck.record.warnings.empty());
      BOOST_TEST(!expand(deck.sweep, built).empty());
      check_equal(load(deck.record.resolved), deck);
    }
    ++decks;
  }
  BOOST_TEST(decks >= 11);
}

BOOST_AUTO_TEST_CASE(the_decks_of_real_models_have_their_shapes) {
  const auto shape = [](const char* name) {
    const auto deck = load_layer_deck({std::string(KFORMER_SOURCE_DIR "/inputs/") + name, {}});
    const ModelTable& m = deck.model;
    return std::vector<std::int64_t>{m.hidden_size,         m.num_attention_heads,
                                     m.num_key_value_heads, m.head_dim,
                                     m.intermediate_size,   m.sliding_window,
                                     m.attention_bias,      static_cast<std::int64_t>(m.rope.theta)};
  };
  using Shape = std::vector<std::int64_t>;
  BOOST_TEST((shape("quickstart.toml") == Shape{2048, 32, 8, 64, 8192, 0, 0, 500000}));
  BOOST_TEST((shape("llama-3.2-1b.toml") == Shape{2048, 32, 8, 64, 8192, 0, 0, 500000}));
  BOOST_TEST((shape("llama-3.1-8b.toml") == Shape{4096, 32, 8, 128, 14336, 0, 0, 500000}));
  BOOST_TEST((shape("qwen2.5-0.5b.toml") == Shape{896, 14, 2, 64, 4864, 0, 1, 1000000}));
  BOOST_TEST((shape("mistral-7b.toml") == Shape{4096, 32, 8, 128, 14336, 4096, 0, 10000}));
  BOOST_TEST((shape("tinyllama-1.1b.toml") == Shape{2048, 32, 4, 64, 5632, 0, 0, 10000}));
}

BOOST_AUTO_TEST_SUITE_END()
