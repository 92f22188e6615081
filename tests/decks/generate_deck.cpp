// SPDX-License-Identifier: MIT
#include "decks/generate_deck.hpp"

#include <nlohmann/json.hpp>

#include <filesystem>
#include <string>
#include <vector>

#include "deck_case.hpp"

namespace {

using namespace kformer;
using namespace kformer::Testing;

const std::string header = header_of("generate");
const std::string weights = "[weights]\npath = \"model\"\n";
const std::string prompt = "[[prompt]]\ntext = \"Once\"\n";

struct GenerateDecks : DeckCase<load_generate_deck> {
  /// The faults of a deck with these keys in [generate], which are on line 6 and below.
  std::string generate_faults(const std::string& keys) const {
    return faults(header + weights + "[generate]\n" + keys + prompt);
  }
};

std::size_t number_of_faults(const std::string& text) {
  std::size_t faults = 0;
  for (auto at = text.find(": error: "); at != std::string::npos; at = text.find(": error: ", at + 1)) ++faults;
  return faults;
}

}  // namespace

BOOST_FIXTURE_TEST_SUITE(generate_deck, GenerateDecks)

BOOST_AUTO_TEST_CASE(a_minimal_deck_is_greedy_with_a_contiguous_cache) {
  const auto deck = load(header + weights + prompt);
  BOOST_TEST(deck.run.name == "deck");
  BOOST_TEST(deck.weights.path == directory / "model");
  BOOST_TEST((deck.weights.format == CheckpointFormat::automatic && deck.weights.keep_quantized));
  BOOST_TEST((deck.tokenizer == TokenizerTable{}));
  BOOST_TEST(!deck.tokenizer.add_bos.has_value());
  BOOST_TEST((deck.sampling == SamplingTable{}));
  BOOST_TEST(deck.sampling.temperature == 0.0);
  BOOST_TEST((deck.generate == GenerateTable{}));
  BOOST_TEST((deck.generate.kv_cache == KvCacheKind::contiguous));
  BOOST_TEST(deck.timing.repeats == 1);
  BOOST_TEST(deck.timing.warmup == 0);
  BOOST_TEST_REQUIRE(deck.prompts.size() == 1u);
  BOOST_TEST(deck.prompts[0].name == "prompt1");
  BOOST_TEST(prompt_text(deck.prompts[0]) == "Once");
  BOOST_TEST(!expected_text(deck.prompts[0]).has_value());
  BOOST_TEST(deck.record.warnings.empty());
}

BOOST_AUTO_TEST_CASE(an_empty_prompt_is_a_prompt) {
  const auto deck = load(header + weights + "[[prompt]]\ntext = \"\"\n");
  BOOST_TEST_REQUIRE(deck.prompts[0].text.has_value());
  BOOST_TEST(prompt_text(deck.prompts[0]).empty());
  BOOST_TEST(load(deck.record.resolved).prompts[0].text.has_value());
}

BOOST_AUTO_TEST_CASE(prompts_come_from_text_files_and_chats) {
  put_contents(directory / "prompt.txt", " Two\nlines \n");
  put_contents(directory / "expected.txt", "Two\nlines and more");
  const auto deck =
      load(header + weights + "[[prompt]]\nfile = \"prompt.txt\"\nexpect_file = \"expected.txt\"\n" +
           "[[prompt]]\nname = \"hello\"\nchat = \"Hi!\"\nsystem = \"Be kind.\"\n" +
           "[[prompt]]\ntext = \"<s>\"\nspecial_tokens = true\nexpect_ids = [1, 1, 5]\n");
  BOOST_TEST_REQUIRE(deck.prompts.size() == 3u);
  BOOST_TEST(prompt_text(deck.prompts[0]) == " Two\nlines \n");
  BOOST_TEST(expected_text(deck.prompts[0]).value() == "Two\nlines and more");
  BOOST_TEST(deck.prompts[1].name == "hello");
  BOOST_TEST(prompt_text(deck.prompts[1]) == "Hi!");
  BOOST_TEST(deck.prompts[1].system.value() == "Be kind.");
  BOOST_TEST(deck.prompts[2].name == "prompt3");
  BOOST_TEST(deck.prompts[2].special_tokens);
  BOOST_TEST((deck.prompts[2].expect_ids == std::vector<std::int64_t>{1, 1, 5}));
}

BOOST_AUTO_TEST_CASE(the_seed_of_the_draws_is_that_of_the_run_unless_given) {
  BOOST_TEST(load(header + "[run]\nseed = 7\n" + weights + prompt).sampling.seed == 7);
  BOOST_TEST(load(header + "[run]\nseed = 7\n[sampling]\nseed = 8\n" + weights + prompt).sampling.seed == 8);
}

BOOST_AUTO_TEST_CASE(half_of_the_heavy_hitters_are_recent_unless_given) {
  const std::string keys = "[generate]\nkv_cache = \"heavy_hitters\"\nbudget = 9\n";
  BOOST_TEST(load(header + weights + keys + prompt).generate.cache.recent == 5);
  BOOST_TEST(load(header + weights + keys + "recent = 9\n" + prompt).generate.cache.recent == 9);
}

BOOST_AUTO_TEST_CASE(an_override_may_bring_the_prompts) {
  const auto deck = load(header + weights, {"prompt=[{text = \"a\"}, {text = \"b\", name = \"second\"}]"});
  BOOST_TEST_REQUIRE(deck.prompts.size() == 2u);
  BOOST_TEST(prompt_text(deck.prompts[1]) == "b");
  BOOST_TEST(deck.prompts[1].name == "second");
}

BOOST_AUTO_TEST_CASE(a_greedy_deck_may_say_how_it_would_sample) {
  BOOST_TEST(load(header + "[sampling]\ntop_k = 40\ntop_p = 0.9\n" + weights + prompt).sampling.top_k == 40);
}

BOOST_AUTO_TEST_CASE(a_deck_names_weights_and_prompts) {
  const std::string missing = faults(header);
  BOOST_TEST(
      contains(missing, "deck.toml:1:1: error: missing table [weights]; its key 'path' names the checkpoint"));
  BOOST_TEST(contains(missing, "no prompt to continue; add a [[prompt]]"));
  BOOST_TEST(number_of_faults(missing) == 2u);
  BOOST_TEST(contains(faults(header + "[weights]\nformat = \"gguf\"\n" + prompt),
                      "deck.toml:3:2: error: missing key 'path' in [weights]: a path"));
  BOOST_TEST(
      contains(faults(header + "prompt = []\n" + weights), "deck.toml:3:10: error: no prompt to continue"));
  BOOST_TEST(contains(faults(header + "prompt = \"hello\"\n" + weights),
                      "'prompt' must be an array of tables, got string \"hello\"; write [[prompt]]"));
}

BOOST_AUTO_TEST_CASE(a_prompt_has_one_source) {
  BOOST_TEST(contains(faults(header + weights + "[[prompt]]\nname = \"x\"\n"),
                      "deck.toml:5:1: error: 'prompt[0]' has no text; give one of 'text', 'file' and 'chat'"));
  BOOST_TEST(contains(faults(header + weights + prompt + "chat = \"Hi\"\n"),
                      "deck.toml:5:1: error: 'prompt[0]' has more than one of 'text', 'file' and 'chat'"));
  BOOST_TEST(contains(faults(header + weights + prompt + "system = \"Be kind.\"\n"),
                      "deck.toml:7:10: error: 'prompt[0].system' needs a 'chat'"));
  const std::string wrong_type = faults(header + weights + "[[prompt]]\ntext = 3\n");
  BOOST_TEST(contains(wrong_type, "deck.toml:6:8: error: 'prompt[0].text' must be a string, got integer 3"));
  BOOST_TEST(number_of_faults(wrong_type) == 1u);
  BOOST_TEST(contains(faults(header + weights + "[[prompt]]\ntxt = \"x\"\ntext = \"\"\n"),
                      "deck.toml:6:1: error: unknown key 'txt' in [prompt[0]]"));
}

BOOST_AUTO_TEST_CASE(a_key_of_another_table_is_shown_with_its_table) {
  BOOST_TEST(contains(faults(header + weights + "dtype = \"float32\"\n" + prompt),
                      "did you mean 'generate.dtype'?  known: format, keep_quantized, path"));
  BOOST_TEST(contains(faults(header + weights + "nonsense = 1\n" + prompt),
                      "^~~~~~~~  known: format, keep_quantized, path"));
  // More tables have a path than would help.
  BOOST_TEST(contains(faults(header + weights + prompt + "[check]\npath = \"x\"\n"), "^~~~  known: "));
}

BOOST_AUTO_TEST_CASE(names_of_prompts_differ) {
  BOOST_TEST(contains(faults(header + weights + prompt + "name = \"prompt2\"\n" + prompt),
                      "deck.toml:8:1: error: 'prompt[1].name' = \"prompt2\" is the name of an earlier prompt"));
}

BOOST_AUTO_TEST_CASE(files_of_prompts_are_readable) {
  const std::string text = faults(header + weights + "[[prompt]]\nfile = \"none.txt\"\nexpect_file = \".\"\n");
  BOOST_TEST(contains(text, "deck.toml:6:8: error: cannot read 'none.txt': No such file or directory"));
  BOOST_TEST(contains(text, "deck.toml:7:15: error: cannot read"));
  BOOST_TEST(contains(text, "Is a directory"));
}

BOOST_AUTO_TEST_CASE(texts_fit_into_a_line_of_the_resolved_deck) {
  std::string lines;
  for (int i = 0; i < 90; ++i) lines += "forty-four bytes of text, one line of ninety\n";
  const auto multi_line = [&](const std::string& text) {
    return header + weights + "[[prompt]]\ntext = \"\"\"\n" + text + "\"\"\"\n";
  };
  BOOST_TEST(
      contains(faults(multi_line(lines)),
               "deck.toml:6:8: error: 'prompt[0].text' has 4050 bytes, too many for a deck; put long texts "
               "into files"));
  const auto deck = load(multi_line(lines.substr(0, 3600)));
  BOOST_TEST((load(deck.record.resolved).prompts == deck.prompts));
}

BOOST_AUTO_TEST_CASE(caches_need_their_sizes) {
  BOOST_TEST(contains(generate_faults("kv_cache = \"window\"\n"),
                      "deck.toml:6:12: error: 'generate.kv_cache' = \"window\" needs 'generate.window' > 0"));
  BOOST_TEST(
      contains(generate_faults("kv_cache = \"heavy_hitters\"\n"),
               "deck.toml:6:12: error: 'generate.kv_cache' = \"heavy_hitters\" needs 'generate.budget' > 0"));
  BOOST_TEST(contains(generate_faults("kv_cache = \"heavy_hitters\"\nbudget = 4\nrecent = 5\n"),
                      "deck.toml:8:10: error: 'generate.recent' = 5 is more than 'generate.budget' = 4"));
  BOOST_TEST(
      contains(generate_faults("kv_cache = \"heavy_hitters\"\nbudget = 4\nrecent = 0\n"),
               "deck.toml:6:12: error: 'generate.kv_cache' = \"heavy_hitters\" needs 'generate.recent' > 0"));
  BOOST_TEST(generate_faults("kv_cache = \"window\"\nwindow = 3\nsinks = 0\n") == "no fault");
  BOOST_TEST(generate_faults("kv_cache = \"paged\"\nrecent = 5\n") == "no fault");
}

BOOST_AUTO_TEST_CASE(batch_invariance_needs_a_cache_of_all_keys_unrounded) {
  const auto keys = [](const std::string& kind) {
    return "batch_invariant = true\nkv_cache = \"" + kind + "\"\nwindow = 3\nbudget = 4\n";
  };
  for (const char* kind : {"int8", "window", "heavy_hitters"})
    BOOST_TEST(
        contains(generate_faults(keys(kind)),
                 "deck.toml:6:19: error: 'generate.batch_invariant' = true needs a cache that keeps what "
                 "a query sees in its place and unrounded: 'generate.kv_cache' = \"contiguous\" or "
                 "\"paged\", not \"" +
                     std::string(kind) + '"'));
  for (const char* kind : {"contiguous", "paged", "none"})
    BOOST_TEST(generate_faults(keys(kind)) == "no fault");
  BOOST_TEST(generate_faults("kv_cache = \"int8\"\n") == "no fault");
}

BOOST_AUTO_TEST_CASE(a_reference_on_the_host_needs_messages_of_hosts) {
  const auto keys = [](const std::string& reference, int tensor, const std::string& backend) {
    return header + weights + "[check]\nreference = \"" + reference +
           "\"\n[parallel]\ntensor = " + std::to_string(tensor) + "\nbackend = \"" + backend + "\"\n" + prompt;
  };
  BOOST_TEST(contains(faults(keys("recompute", 2, "nccl")),
                      "deck.toml:6:13: error: 'check.reference' = \"recompute\" computes on the host, whose "
                      "memory 'parallel.backend' = \"nccl\" does not move; take \"mpi\""));
  BOOST_TEST(faults(keys("recompute", 2, "mpi")) == "no fault");
  BOOST_TEST(faults(keys("recompute", 1, "nccl")) == "no fault");
  BOOST_TEST(faults(keys("none", 2, "nccl")) == "no fault");
}

BOOST_AUTO_TEST_CASE(a_stop_string_is_not_empty) {
  BOOST_TEST(contains(generate_faults("stop = [\"\\n\", \"\"]\n"),
                      "deck.toml:6:15: error: 'generate.stop[1]' must not be empty"));
  BOOST_TEST(
      contains(generate_faults("stop = \"\"\n"), "deck.toml:6:8: error: 'generate.stop[0]' must not be empty"));
}

BOOST_AUTO_TEST_CASE(contradictions_are_reported_with_their_place) {
  BOOST_TEST(contains(faults(header +
                             "[weights]\npath = \"m\"\nkeep_quantized = false\n[generate]\nactivations = "
                             "\"int8\"\n" +
                             prompt),
                      "deck.toml:7:15: error: 'generate.activations' = \"int8\" needs quantised weights"));
  BOOST_TEST(
      contains(faults(header + weights + "[tokenizer]\nformat = \"byte\"\npath = \"t\"\n" + prompt),
               "deck.toml:7:8: error: 'tokenizer.path' names a file, but 'tokenizer.format' = \"byte\""));
  BOOST_TEST(
      contains(faults(header + weights + "format = \"safetensors\"\n[tokenizer]\nformat = \"gguf\"\n" + prompt),
               "deck.toml:7:10: error: 'tokenizer.format' = \"gguf\" needs 'tokenizer.path'"));
  const std::string sampled = "[sampling]\ntemperature = 1\n[generate]\nbatch = 2\n";
  BOOST_TEST(contains(faults(header + weights + sampled + prompt + "expect_ids = 5\n"),
                      "deck.toml:11:14: error: 'prompt[0].expect_ids' describes one sequence, but with "
                      "'sampling.temperature' > 0 the 2 rows of the batch differ"));
  BOOST_TEST(contains(faults(header + "[run]\nname = \"a/b\"\n" + weights + prompt),
                      "'run.name' must not contain '/'"));
}

BOOST_AUTO_TEST_CASE(numbers_stay_in_their_ranges) {
  const std::string text = faults(
      header + weights + prompt, {"sampling.top_p=0", "sampling.temperature=-1", "sampling.min_p=1.5",
                                  "sampling.repetition_penalty=0", "generate.batch=0", "generate.page_tokens=0",
                                  "generate.max_new_tokens=-1", "timing.repeats=0", "generate.dtype=int8"});
  for (const char* part :
       {"'sampling.top_p' must be a number in (0, 1], got integer 0",
        "'sampling.temperature' must be a number in [0, 1e+38]",
        "'sampling.min_p' must be a number in [0, 1], got float 1.5",
        "'sampling.repetition_penalty' must be a number in [1e-38, 1e+38]",
        "'generate.batch' must be an integer in [1, 65536]",
        "'generate.page_tokens' must be an integer in [1, 65536]",
        "'generate.max_new_tokens' must be an integer in [0, ",
        "'timing.repeats' must be an integer in [1, 100000]",
        "'generate.dtype' must be one of \"f32\", \"bf16\", \"f16\", \"f64\", got string \"int8\""})
    BOOST_TEST(contains(text, part), part << " is missing in\n" << text);
  BOOST_TEST(number_of_faults(text) == 9u);
  BOOST_TEST(
      contains(faults(header + weights + prompt + "expect_ids = [1, -1]\n"),
               "deck.toml:7:18: error: 'prompt[0].expect_ids[1]' must be an integer in [0, 2147483647]"));
}

BOOST_AUTO_TEST_CASE(the_space_must_be_built) {
  GenerateTable table;
  BOOST_TEST(execution_space_of(table, built) == "openmp");
  table.execution_space = "serial";
  BOOST_TEST(execution_space_of(table, built) == "serial");
  table.execution_space = "cuda";
  BOOST_CHECK_EXCEPTION(execution_space_of(table, built), DeckError, [](const DeckError& error) {
    return contains(error.what(), "asks for \"cuda\", but this build has: openmp, serial");
  });
}

BOOST_AUTO_TEST_CASE(the_resolved_deck_means_the_same) {
  put_contents(directory / "p.txt", "prompt");
  std::string ids = "expect_ids = [";
  for (int i = 0; i < 2000; ++i) ids += std::to_string(30000 + i % 7) + (i % 50 == 49 ? ",\n" : ", ");
  const auto deck = load(
      header + weights +
          "[tokenizer]\nadd_bos = false\nformat = \"byte\"\n[generate]\nkv_cache = \"window\"\nwindow = 8\n" +
          "stop = [\"\\n\\n\", \"The \\\"End\\\"\"]\n" + prompt + ids + "]\n" +
          "[[prompt]]\nchat = \"Grüße\\t\\u0001\"\nsystem = \"\"\n[[prompt]]\nfile = \"p.txt\"\n",
      {"sampling.temperature=0.8", "run.seed=5", "check.reference=recompute", "timing.repeats=3"});
  const auto again = load(deck.record.resolved);
  BOOST_TEST((again.run == deck.run));
  BOOST_TEST((again.timing == deck.timing));
  BOOST_TEST((again.profile == deck.profile));
  BOOST_TEST((again.output == deck.output));
  BOOST_TEST((again.weights == deck.weights));
  BOOST_TEST((again.tokenizer == deck.tokenizer));
  BOOST_TEST((again.sampling == deck.sampling));
  BOOST_TEST((again.generate == deck.generate));
  BOOST_TEST((again.check == deck.check));
  BOOST_TEST((again.prompts == deck.prompts));
  BOOST_TEST(again.record.resolved == deck.record.resolved);
  BOOST_TEST(deck.prompts[0].expect_ids.size() == 2000u);
  BOOST_TEST(deck.prompts[1].system.has_value());
}

BOOST_AUTO_TEST_CASE(the_decks_of_the_project_are_good) {
  int decks = 0;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(KFORMER_SOURCE_DIR "/inputs")) {
    const std::string text = entry.is_regular_file() ? contents_of(entry.path()) : "";
    if (!contains(text, "kind = \"generate\"")) continue;
    ++decks;
    // The files of its own prompts may be absent.
    const auto deck = load_generate_deck({entry.path(), {"prompt=[{text = \"\"}]"}});
    BOOST_TEST(deck.record.warnings.empty(), entry.path());
    if (!contains(text, "expect_file")) BOOST_TEST(!load_generate_deck({entry.path(), {}}).prompts.empty());
  }
  BOOST_TEST(decks >= 5);
}

BOOST_AUTO_TEST_CASE(the_documentation_is_current) {
  check_documentation("generate", "kformer-generate", describe_deck_markdown<GenerateDeck>());
}

BOOST_AUTO_TEST_CASE(the_json_schema_knows_the_prompts) {
  const auto schema = nlohmann::json::parse(describe_deck_json_schema<GenerateDeck>());
  const auto& prompts = schema.at("properties").at("prompt");
  BOOST_TEST(prompts.at("type") == "array");
  const auto& keys = prompts.at("items").at("properties");
  BOOST_TEST(keys.at("text").at("type") == "string");
  BOOST_TEST(!keys.at("text").contains("default"));
  BOOST_TEST(keys.at("expect_ids").at("oneOf").at(1).at("uniqueItems") == false);
  BOOST_TEST(schema.at("properties").at("tokenizer").at("properties").at("add_bos").at("type") == "boolean");
  BOOST_TEST(schema.at("properties").at("generate").at("properties").at("sinks").at("default") == 4);
}

BOOST_AUTO_TEST_SUITE_END()
