// SPDX-License-Identifier: MIT
// What holds for every kind of deck, tried with the layer sweep: syntax, limits, includes, overrides, error
// texts.
#include <sys/stat.h>

#include <string>

#include "decks/engine/deck_keys.hpp"
#include "layer_decks.hpp"

namespace {

using namespace kformer::Testing;

struct Decks : LayerDecks {
  void put(const std::string& text, const std::string& name) const { put_contents(directory / name, text); }
};

std::string repeated(const std::string& piece, int times) {
  std::string text;
  for (int i = 0; i < times; ++i) text += piece;
  return text;
}

}  // namespace

BOOST_FIXTURE_TEST_SUITE(deck, Decks)

BOOST_AUTO_TEST_CASE(unknown_key_is_shown_with_the_nearest_name) {
  BOOST_TEST(faults(header + model + "[sweep]\nseq_len = 8\nseqlen = [1024, 2048]\n") ==
             "deck.toml:9:1: error: unknown key 'seqlen' in [sweep]\n"
             "    9 | seqlen = [1024, 2048]\n"
             "      | ^~~~~~  did you mean 'seq_len'?  known: batch, direction, dtype, exclude, "
             "execution_space, impl, "
             "mode, seq_len");
}

BOOST_AUTO_TEST_CASE(unknown_table_is_shown_with_the_nearest_name) {
  BOOST_TEST(faults(good + "[modle]\nx = 1\n") ==
             "deck.toml:9:2: error: unknown table [modle]\n"
             "    9 | [modle]\n"
             "      |  ^~~~~  did you mean 'model'?  known: check, include, kind, model, optimizer, output, "
             "precision, profile, run, schema, sweep, tensors, timing");
}

BOOST_AUTO_TEST_CASE(all_faults_are_reported_together_in_the_order_of_the_text) {
  const std::string text = good + "impl = \"flsh\"\nfoo = 1\n[timing]\nrepeats = 0\n[run]\nseed = \"a\"\n";
  BOOST_TEST(faults(text, {"timing.warmup=many", "run.walltime_s=-1"}) ==
             "deck.toml:9:8: error: 'sweep.impl' must be one of \"standard\", \"flash\" or an array of them, "
             "got string "
             "\"flsh\"\n"
             "    9 | impl = \"flsh\"\n"
             "      |        ^~~~~~  did you mean 'flash'?\n"
             "deck.toml:10:1: error: unknown key 'foo' in [sweep]\n"
             "   10 | foo = 1\n"
             "      | ^~~  known: batch, direction, dtype, exclude, execution_space, impl, mode, seq_len\n"
             "deck.toml:12:11: error: 'timing.repeats' must be an integer in [1, 100000], got integer 0\n"
             "   12 | repeats = 0\n"
             "      |           ^\n"
             "deck.toml:14:8: error: 'run.seed' must be an integer >= 0, got string \"a\"\n"
             "   14 | seed = \"a\"\n"
             "      |        ^~~\n"
             "--set[1]:1:15: error: 'timing.warmup' must be an integer in [0, 100000], got string \"many\"\n"
             "    1 | timing.warmup=many\n"
             "      |               ^~~~\n"
             "--set[2]:1:16: error: 'run.walltime_s' must be a number >= 0, got integer -1\n"
             "    1 | run.walltime_s=-1\n"
             "      |                ^~");
}

// Finding the line of each takes time, and nobody reads thousands.
BOOST_AUTO_TEST_CASE(a_hundred_faults_are_listed_and_the_others_are_counted) {
  const auto unknown = [&](int count) {
    std::string keys = good + "[run]\n";
    for (int i = 0; i < count; ++i) keys += "wrong" + std::to_string(i) + " = 1\n";
    return faults(keys);
  };
  BOOST_TEST(!contains(unknown(100), "not listed"));
  const std::string said = unknown(3000);
  BOOST_TEST(contains(said, "unknown key 'wrong0' in [run]"));
  BOOST_TEST(said.ends_with("\nerror: faults that are not listed: 2900"));
  BOOST_TEST(said.size() < 50000u);
}

BOOST_AUTO_TEST_CASE(carets_stand_under_tabs_and_letters_of_several_bytes) {
  BOOST_TEST(
      faults(good + "\tdtype = [\"größe\", 7]\n") ==
      "deck.toml:9:11: error: 'sweep.dtype[0]' must be one of \"f32\", \"bf16\", \"f16\", \"f64\", got string "
      "\"größe\"\n"
      "    9 | \tdtype = [\"größe\", 7]\n"
      "      | \t         ^~~~~~~\n"
      "deck.toml:9:20: error: 'sweep.dtype[1]' must be one of \"f32\", \"bf16\", \"f16\", \"f64\", got integer "
      "7\n"
      "    9 | \tdtype = [\"größe\", 7]\n"
      "      | \t                  ^");
}

BOOST_AUTO_TEST_CASE(carriage_returns_are_white_space) {
  std::string text = good + "foo = 1\n";
  for (auto at = text.find('\n'); at != std::string::npos; at = text.find('\n', at + 2))
    text.replace(at, 1, "\r\n");
  BOOST_TEST(contains(faults(text), "    9 | foo = 1\n      | ^~~"));
}

BOOST_AUTO_TEST_CASE(types_are_not_converted_silently) {
  const auto fault = [&](const std::string& line) { return faults(good + line + "\n"); };
  BOOST_TEST(contains(fault("batch = 1.0"),
                      "9:9: error: 'sweep.batch' must be an integer in [1, 16777216] or an array of "
                      "them, got float 1.0"));
  BOOST_TEST(contains(fault("batch = true"), "got boolean true"));
  BOOST_TEST(contains(fault("batch = 2026-01-01"), "got a date or time"));
  BOOST_TEST(contains(fault("batch = {a = 1}"), "got a table"));
  BOOST_TEST(
      contains(fault("batch = [[1]]"), "'sweep.batch[0]' must be an integer in [1, 16777216], got an array"));
  BOOST_TEST(contains(fault("impl = 1"), "got integer 1"));
  BOOST_TEST(contains(fault("[run]\nname = 1"), "'run.name' must be a string, got integer 1"));
  BOOST_TEST(contains(fault("[profile]\nkernels = 1"), "'profile.kernels' must be a boolean, got integer 1"));
  BOOST_TEST(
      contains(fault("[timing]\nmin_time_s = \"1\""), "must be a number in [0, 3600], got string \"1\""));
  BOOST_TEST(contains(fault("[timing]\nmin_time_s = nan"), "got float nan"));
  BOOST_TEST(contains(fault("[run]\nwalltime_s = inf"), "must be a number >= 0, got float inf"));
  BOOST_TEST(contains(fault("[run]\nwalltime_s = [1]"), "must be a number >= 0, got an array"));
  BOOST_TEST(faults(good + "[timing]\nmin_time_s = 1\n") == "no fault");
}

BOOST_AUTO_TEST_CASE(tables_must_be_tables) {
  BOOST_TEST(
      contains(faults("run = 3\n" + good), "deck.toml:1:1: error: 'run' must be a table, got integer 3"));
  BOOST_TEST(contains(
      faults(good + "exclude = 3\n"),
      "9:1: error: 'sweep.exclude' must be an array of tables, got integer 3; write [[sweep.exclude]]"));
  BOOST_TEST(contains(faults(good + "exclude = [3]\n"),
                      "9:12: error: 'sweep.exclude[0]' must be a table, got integer 3"));
  BOOST_TEST(contains(faults(good + "[[run]]\nseed = 1\n"), "'run' must be a table, got an array"));
}

BOOST_AUTO_TEST_CASE(a_deck_says_its_schema_and_kind) {
  BOOST_TEST(faults("") ==
             "deck.toml: error: the deck is empty; it starts with schema = 1 and kind = \"layer_sweep\"");
  BOOST_TEST(faults("# nothing\n \n") ==
             "deck.toml: error: the deck is empty; it starts with schema = 1 and kind = \"layer_sweep\"");
  BOOST_TEST(faults("x = 1\n") ==
             "deck.toml:1:1: error: missing key 'schema' at the top level: an integer equal to 1\n"
             "deck.toml:1:1: error: missing key 'kind' at the top level: \"layer_sweep\"");
  BOOST_TEST(faults("schema = 2\nkind = \"layer_sweep\"\nfuture = 1\n") ==
             "deck.toml:1:10: error: 'schema' must be an integer equal to 1, got integer 2\n"
             "    1 | schema = 2\n"
             "      |          ^");
  BOOST_TEST(faults("schema = 1\nkind = \"layer_swep\"\n") ==
             "deck.toml:2:8: error: 'kind' must be \"layer_sweep\", got string \"layer_swep\"\n"
             "    2 | kind = \"layer_swep\"\n"
             "      |        ^~~~~~~~~~~~  did you mean 'layer_sweep'?");
}

BOOST_AUTO_TEST_CASE(unreadable_decks_are_file_errors) {
  const auto message = [&](const std::string& path) -> std::string {
    try {
      kformer::load_layer_deck({path, {}});
    } catch (const kformer::FileError& error) {
      return without_directory(error.what());
    }
    return "no error";
  };
  BOOST_TEST(message((directory / "none.toml").string()) ==
             "cannot read 'none.toml': No such file or directory");
  BOOST_TEST(contains(message(directory.path().string()), "': Is a directory"));
  BOOST_REQUIRE(::mkfifo((directory / "pipe.toml").c_str(), 0600) == 0);
  BOOST_TEST(message((directory / "pipe.toml").string()) ==
             "cannot read 'pipe.toml': it is a pipe, a device or a socket, not a file");
}

BOOST_AUTO_TEST_CASE(broken_toml_is_an_ordinary_error) {
  BOOST_TEST(contains(faults(header + "[run]\nseed = 10000.0.0\n"), "deck.toml:4:15: error: "));
  BOOST_TEST(contains(faults(header + "[run]\nseed = 010\n"), "deck.toml:4:11: error: "));
  BOOST_TEST(contains(faults(header + "[profile]\nkernels = no\n"), "deck.toml:4:"));
  BOOST_TEST(contains(faults(header + "[run]\nseed = 99999999999999999999\n"), "deck.toml:4:"));
  BOOST_TEST(contains(faults(header + "[run]\nname = \"open\n"), "deck.toml:4:"));
  BOOST_TEST(contains(faults(header + "[[["), "deck.toml:3:3: error: "));
}

BOOST_AUTO_TEST_CASE(nothing_can_be_said_twice) {
  BOOST_TEST(contains(faults(good + "seq_len = 8\n"), "deck.toml:9:"));
  BOOST_TEST(contains(faults(good + "[sweep]\nbatch = 8\n"), "deck.toml:9:"));
  BOOST_TEST(contains(faults(good + "[run]\nseed = 1\n[run]\n"), "deck.toml:11:"));
}

BOOST_AUTO_TEST_CASE(hostile_depth_is_refused_before_it_costs_the_stack) {
  BOOST_TEST(faults("x = " + repeated("[", 100000)) ==
             "deck.toml:1:1: error: the line has 100004 bytes, but the limit is 4096; break the array over "
             "several lines");
  BOOST_TEST(contains(faults("x = " + repeated("[\n", 100000)), "deck.toml:33:"));
  BOOST_TEST(contains(faults("x = " + repeated("{a=", 1000)), "deck.toml:1:"));
  BOOST_TEST(contains(faults(repeated("a.", 50000) + "a = 1"), "error: the line has 100005 bytes"));
  BOOST_TEST(contains(faults("\n [ " + repeated("a . ", 50) + "a ]"),
                      "deck.toml:2:3: error: a key with more than 16 dots; no table is that deep"));
  BOOST_TEST(contains(faults("x = [\n{" + repeated("\"a\".", 50) + "a = 1}]"), "a key with more than 16 dots"));
  BOOST_TEST(contains(faults(repeated("a.", 16) + "a = 1"), "missing key 'schema'"));
  BOOST_TEST(contains(faults(repeated("a.", 17) + "a = 1"), "a key with more than 16 dots"));
  BOOST_TEST(faults(repeated("# a long deck\n", 80000)) ==
             "deck.toml: error: the deck is larger than 1048576 bytes");
}

BOOST_AUTO_TEST_CASE(dots_in_strings_and_comments_are_no_keys) {
  const std::string dots = repeated("a.", 40);
  BOOST_TEST(faults(good + "# " + dots + "\n[run]\nname = \"" + dots + "\"\n") == "no fault");
  BOOST_TEST(faults(good + "[run]\nname = '" + dots + "'\n") == "no fault");
  BOOST_TEST(faults(good + "[run]\nname = \"\"\"\n\\\"\"" + dots + "\n" + dots + "\"\"\"\n") == "no fault");
}

BOOST_AUTO_TEST_CASE(bytes_that_are_not_utf8_are_an_ordinary_error) {
  const std::string report = faults(good + "[run]\nname = \"\xff\xfe\"\n");
  BOOST_TEST(contains(report, "deck.toml:10:"));
  BOOST_TEST(!contains(report, "\xff"));
  BOOST_TEST(contains(faults(good + std::string("[run]\nname = \"\0\"\n", 17)), "deck.toml:10:"));
}

BOOST_AUTO_TEST_CASE(letters_beyond_ascii_stand_in_strings_and_comments) {
  const std::string key = "sch\u00E9ma", said = "a non-ASCII letter outside a string; put the text in quotes";
  BOOST_TEST(contains(faults(key + " = 1\n"), said));
  BOOST_TEST(contains(faults("[" + key + "]\n"), said));
  BOOST_TEST(contains(faults("", {"run." + key + "=1"}), said));
  BOOST_TEST(faults(good + "# " + key + "\n[run]\nname = \"" + key + "\"\n") == "no fault");
  BOOST_TEST(faults(good, {"run.name=" + key}) == "no fault");
  for (const char* mark : {"\xff\xfe", "\xfe\xff"})
    BOOST_TEST(contains(faults(mark + std::string("s\0c\0", 4)), "the deck is in UTF-16; save it in UTF-8"));
}

BOOST_AUTO_TEST_CASE(exclusions_cost_a_second_at_most) {
  const auto numbers = [](int count) {
    std::string list;
    for (int i = 1; i <= count; ++i) list += std::to_string(i) + ",\n";
    return "[" + list + "]\n";
  };
  const std::string sweep =
      header + model + "[sweep]\nseq_len = " + numbers(1000) + "batch = " + numbers(25) + "impl = \"flash\"\n";
  const std::string exclusion = "[[sweep.exclude]]\nseq_len = 7\n";
  BOOST_TEST(faults(sweep + repeated(exclusion, 400)) == "no fault");
  BOOST_TEST(contains(faults(sweep + repeated(exclusion, 401)),
                      "401 exclusions of 50000 cases are more than 20000000 tests; use fewer"));
}

BOOST_AUTO_TEST_CASE(names_of_files_have_no_zero_byte) {
  BOOST_TEST(contains(faults(good + "[output]\nfile = \"run\\u0000.h5\"\n"),
                      "'output.file' must not contain a zero byte"));
  BOOST_TEST(contains(faults(good + "[run]\nname = \"run\\u0000\"\n"), "'run.name' must not contain"));
}

BOOST_AUTO_TEST_CASE(every_prefix_of_a_deck_loads_or_is_refused) {
  const std::string text =
      good + "dtype = [\"f32\", 'bf16'] # two\n[[sweep.exclude]]\nbatch = 0x1\n[run]\nwalltime_s = 1e3\n";
  for (std::size_t length = 0; length <= text.size(); ++length) {
    const std::string report = faults(text.substr(0, length));
    BOOST_TEST((report == "no fault" || report.starts_with("deck.toml")),
               "prefix " << length << ": " << report);
  }
}

BOOST_AUTO_TEST_CASE(overrides_win_and_the_last_one_most) {
  const auto deck = load(good + "[timing]\nrepeats = 5\n",
                         {"timing.repeats=6", "timing.repeats = 7", "run.name=\"x y\"", "sweep.seq_len=[1, 2]",
                          "timing.min_time_s=1", "profile.kernels=true", "model.rope_scaling.factor=2"});
  BOOST_TEST(deck.timing.repeats == 7);
  BOOST_TEST(deck.run.name == "x y");
  BOOST_TEST(deck.sweep.axes.seq_len == (std::vector<std::int64_t>{1, 2}), boost::test_tools::per_element());
  BOOST_TEST(deck.timing.min_time_s == 1.0);
  BOOST_TEST(deck.profile.kernels);
  BOOST_TEST(deck.model.rope.scaling.factor == 2.0);
}

BOOST_AUTO_TEST_CASE(bare_words_are_strings_only_where_they_are_no_toml) {
  const auto deck = load(good, {"run.name=layer-h100", "output.file={name}.{jobid}.h5", "sweep.dtype= bf16 "});
  BOOST_TEST(deck.run.name == "layer-h100");
  BOOST_TEST(deck.output.file == "{name}.{jobid}.h5");
  BOOST_TEST((deck.sweep.axes.dtype.front() == kformer::DType::bf16));
  BOOST_TEST(contains(faults(good, {"run.name=7"}),
                      "--set[1]:1:10: error: 'run.name' must be a string, got integer 7"));
  BOOST_TEST(contains(faults(good, {"run.name=true"}), "'run.name' must be a string, got boolean true"));
}

BOOST_AUTO_TEST_CASE(faulty_overrides_are_named_by_their_number) {
  BOOST_TEST(faults(good, {"run.seed=1", "junk"}) ==
             "--set[2]:1:1: error: --set expects table.key=value on one line\n    1 | junk\n      | ^");
  BOOST_TEST(contains(faults(good, {""}), "--set[1]:1:1: error: --set expects table.key=value on one line"));
  BOOST_TEST(contains(faults(good, {"# a = 1"}), "--set expects table.key=value on one line"));
  BOOST_TEST(contains(faults(good, {"run.seed=1\nrun.name=2"}), "--set expects table.key=value on one line"));
  BOOST_TEST(contains(faults(good, {"run.seed="}), "--set[1]:1:"));
  BOOST_TEST(contains(faults(good, {"run..seed=1"}), "--set[1]:1:"));
  BOOST_TEST(contains(faults(good, {"sweep.seq_len=[1, 2"}), "--set[1]:1:"));
  BOOST_TEST(contains(faults(good, {repeated("a.", 20) + "a=1"}), "a key with more than 16 dots"));
  BOOST_TEST(faults(good, {"run.sead=1"}) ==
             "--set[1]:1:5: error: unknown key 'sead' in [run]\n"
             "    1 | run.sead=1\n"
             "      |     ^~~~  did you mean 'seed'?  known: name, on_oom, seed, threads, walltime_s");
  BOOST_TEST(contains(faults(good, {"run=3"}), "--set[1]:1:1: error: 'run' must be a table, got integer 3"));
  BOOST_TEST(contains(faults(good, {"include=other.toml"}),
                      "--set[1]:1:1: error: 'include' belongs in a deck; --set cannot add one"));
}

BOOST_AUTO_TEST_CASE(an_included_deck_lies_below_the_deck_that_names_it) {
  std::filesystem::create_directory(directory / "shared");
  put(model + "[run]\nseed = 1\nthreads = 1\n[timing]\nrepeats = 1\n[sweep]\nseq_len = [1, 2, 3]\n",
      "shared/base.toml");
  put("include = \"base.toml\"\n[run]\nseed = 2\nthreads = 2\n", "shared/middle.toml");
  const auto deck = load(header + "include = \"shared/middle.toml\"\n[run]\nseed = 3\n[sweep]\nseq_len = [4]\n",
                         {"timing.warmup=9"});
  BOOST_TEST(deck.run.seed == 3);
  BOOST_TEST(deck.run.threads == 2);
  BOOST_TEST(deck.timing.repeats == 1);
  BOOST_TEST(deck.timing.warmup == 9);
  BOOST_TEST(deck.sweep.axes.seq_len.size() == 1u);
  BOOST_TEST(deck.model.hidden_size == 64);
  BOOST_TEST(!contains(deck.record.resolved, "include"));
}

BOOST_AUTO_TEST_CASE(faults_of_an_included_deck_are_shown_there) {
  put(model + "[run]\nsead = 1\nthreads = \"x\"\n[sweep]\nseq_len = 1\n", "base.toml");
  BOOST_TEST(faults(header + "include = \"base.toml\"\n[run]\nname = 1\n") ==
             "deck.toml:5:8: error: 'run.name' must be a string, got integer 1\n"
             "    5 | name = 1\n"
             "      |        ^\n"
             "base.toml:6:1: error: unknown key 'sead' in [run]\n"
             "    6 | sead = 1\n"
             "      | ^~~~  did you mean 'seed'?  known: name, on_oom, seed, threads, walltime_s\n"
             "base.toml:7:11: error: 'run.threads' must be an integer in [0, 512], got string \"x\"\n"
             "    7 | threads = \"x\"\n"
             "      |           ^~~");
  put("[run\n", "base.toml");
  BOOST_TEST(contains(faults(header + "include = \"base.toml\"\n"), "base.toml:1:"));
}

BOOST_AUTO_TEST_CASE(includes_that_cannot_be_followed_are_shown_where_they_stand) {
  BOOST_TEST(faults(header + "include = \"none.toml\"\n") ==
             "deck.toml:3:11: error: cannot read 'none.toml': No such file or directory\n"
             "    3 | include = \"none.toml\"\n"
             "      |           ^~~~~~~~~~~");
  BOOST_TEST(contains(faults(header + "include = 3\n"), "'include' must be the path of a deck, got integer 3"));
  BOOST_TEST(
      contains(faults(header + "include = \"\"\n"), "'include' must be the path of a deck, got string \"\""));
  BOOST_TEST(contains(faults(header + "include = \"deck.toml\"\n"),
                      "deck.toml:3:11: error: the deck includes itself: deck.toml -> deck.toml"));
  put("include = \"deck.toml\"\n", "base.toml");
  BOOST_TEST(contains(faults(header + "include = \"base.toml\"\n"),
                      "base.toml:1:11: error: the deck includes itself: deck.toml -> base.toml -> deck.toml"));
  for (int i = 0; i < 12; ++i)
    put("include = \"d" + std::to_string(i + 1) + ".toml\"\n", "d" + std::to_string(i) + ".toml");
  BOOST_TEST(contains(faults(header + "include = \"d0.toml\"\n"), "includes are nested deeper than 8"));
  put("kind = \"train\"\n", "base.toml");
  BOOST_TEST(
      contains(faults(header + "include = \"base.toml\"\n"),
               "base.toml:1:1: error: 'kind' is string \"train\", but string \"layer_sweep\" in the deck that "
               "includes this one"));
}

BOOST_AUTO_TEST_CASE(the_record_holds_the_deck_byte_for_byte) {
  const std::string text = "# a comment\r\n" + good + "\n\n";
  BOOST_TEST(load(text).record.text == text);
}

BOOST_AUTO_TEST_CASE(floats_are_resolved_to_the_same_bits) {
  for (const char* value : {"3e-4", "0.1", "1e-300", "123456789.125", "1e22", "5", "0.30000000000000004"}) {
    const auto deck = load(good, {std::string("run.walltime_s=") + value});
    const auto again = load(deck.record.resolved);
    BOOST_TEST(again.run.walltime_s == deck.run.walltime_s);
    BOOST_TEST(again.run.walltime_s == std::stod(value));
  }
  BOOST_TEST(contains(load(good, {"run.walltime_s=3e-4"}).record.resolved, "walltime_s = 3e-04\n"));
}

BOOST_AUTO_TEST_CASE(strings_are_resolved_to_the_same_bytes) {
  for (const char* value : {R"("a\"b\\c")", R"("tab\tline\nbell\u0007delete\u007f")", "'größe'"}) {
    const auto deck = load(good, {std::string("run.name=") + value});
    BOOST_TEST(load(deck.record.resolved).run.name == deck.run.name);
  }
}

BOOST_AUTO_TEST_CASE(placeholders_of_the_output_file) {
  const kformer::OutputPlaceholders values{"layer", "layer_sweep", "2026-01-31", "17"};
  const auto name = [&](const char* pattern) { return kformer::output_file_name(pattern, values); };
  BOOST_TEST(name("{name}.h5") == "layer.h5");
  BOOST_TEST(name("out/{kind}-{date}-{jobid}/{name}{name}.h5") ==
             "out/layer_sweep-2026-01-31-17/layerlayer.h5");
  BOOST_TEST(name("plain.h5") == "plain.h5");
  const auto fault = [&](const char* pattern) -> std::string {
    try {
      return "no fault: " + name(pattern);
    } catch (const kformer::DeckError& error) {
      return error.what();
    }
  };
  BOOST_TEST(fault("{nam}.h5") ==
             "unknown placeholder '{nam}' in the name of the output file; did you mean 'name'?");
  BOOST_TEST(fault("{}.h5") ==
             "unknown placeholder '{}' in the name of the output file; known: name, kind, date, jobid");
  for (const char* pattern : {"{name", "name}", "{na{me}}", "{"})
    BOOST_TEST(fault(pattern) == "unmatched brace in the name of the output file");
  BOOST_TEST(
      faults(good, {"output.file={rank}.h5"}) ==
      "--set[1]:1:13: error: unknown placeholder '{rank}' in the name of the output file; known: name, kind, "
      "date, jobid\n"
      "    1 | output.file={rank}.h5\n"
      "      |             ^~~~~~~~~");
  BOOST_TEST(contains(faults(good, {"output.file=''"}), "'output.file' must not be empty"));
}

// A resolved deck breaks them.
BOOST_AUTO_TEST_CASE(long_lists_are_compared_to_their_last_value) {
  const auto keys_to = [&](int last) {
    std::string lengths = "[";
    for (int i = 1000; i < 1299; ++i) lengths += std::to_string(i) + ", ";
    return kformer::keys_of(
        load(good, {"sweep.seq_len=" + lengths + std::to_string(last) + "]"}).record.resolved);
  };
  const auto keys = keys_to(2000);
  BOOST_TEST(!kformer::difference_of(keys, keys_to(2000)));
  const auto difference = kformer::difference_of(keys, keys_to(2001));
  BOOST_TEST_REQUIRE(difference.has_value());
  BOOST_TEST(difference->key == "sweep.seq_len");
  BOOST_TEST(difference->value.starts_with("[1000, 1001, "));
  BOOST_TEST(difference->value.ends_with(", 1298, 2000]"));
  BOOST_TEST(difference->other.ends_with(", 1298, 2001]"));
}

// Whatever they look like: headings, keys, commas at ends.
BOOST_AUTO_TEST_CASE(texts_in_long_lists_are_no_keys) {
  const std::string x(990, 'x');
  const auto keys =
      kformer::keys_of("[a]\nb = [\"" + x + "\",\n\"[c] d = 1,\",\n[1, 2]]\ne = \",\"\nf = 2\n[g]\nh = 3\n");
  const kformer::DeckKeys expected{
      {"a.b", "[\"" + x + "\", \"[c] d = 1,\", [1, 2]]"}, {"a.e", "\",\""}, {"a.f", "2"}, {"g.h", "3"}};
  BOOST_TEST((keys == expected));
}

BOOST_AUTO_TEST_SUITE_END()
