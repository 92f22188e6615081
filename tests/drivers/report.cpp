// SPDX-License-Identifier: MIT
#include "app/report.hpp"

#include <boost/test/unit_test.hpp>

#include <algorithm>
#include <limits>
#include <sstream>

#include "app/completion.hpp"
#include "decks/models/model_calls.hpp"
#include "decks/models/model_presets.hpp"
#include "kformer/core/error.hpp"

namespace {

using namespace kformer;
using namespace kformer::drivers;

Report::Layout layout(ReportFormat format, std::vector<std::vector<ReportValue>> points) {
  return {format,
          false,
          {{"space", "execution_space", 0, true}, {"dtype", "dtype", 0, true}, {"batch", "batch"}},
          std::move(points),
          {{"time", "time_s", 6}, {"", "p10_s"}, {"status", "status", 0, true}}};
}

std::vector<ReportValue> point(const char* space, const char* dtype, std::int64_t batch) {
  return {text_value(space), text_value(dtype), count_value(batch)};
}

std::vector<ReportValue> result(double time) { return {{"1.0 ms", time}, {"", time / 2}, text_value("ok")}; }

std::string printed(ReportFormat format) {
  Report r(layout(format, {point("openmp", "f32", 1), point("openmp", "bf16", 16)}));
  std::string text = r.head() + r.row(result(0.5));
  text += r.row(result(std::numeric_limits<double>::quiet_NaN()), "no, \"memory\"");
  return text + r.end();
}

std::size_t longest_line(const std::string& text) {
  std::size_t longest = 0;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) longest = std::max(longest, line.size());
  return longest;
}

}  // namespace

BOOST_AUTO_TEST_SUITE(report)

BOOST_AUTO_TEST_CASE(labels_that_no_row_changes_are_in_a_line_before_the_table) {
  BOOST_TEST(printed(ReportFormat::table) ==
             "space openmp\n"
             "dtype batch   time status\n"
             "f32       1 1.0 ms ok\n"
             "bf16     16 1.0 ms ok\n"
             "  no, \"memory\"\n");
}

BOOST_AUTO_TEST_CASE(csv_has_all_columns_and_quotes_what_would_end_a_field) {
  BOOST_TEST(printed(ReportFormat::csv) ==
             "execution_space,dtype,batch,time_s,p10_s,status,message\n"
             "openmp,f32,1,0.5,0.25,ok,\n"
             "openmp,bf16,16,,,ok,\"no, \"\"memory\"\"\"\n");
}

BOOST_AUTO_TEST_CASE(json_is_an_array_of_objects_without_nan) {
  BOOST_TEST(
      printed(ReportFormat::json) ==
      "[\n"
      "  {\"execution_space\": \"openmp\", \"dtype\": \"f32\", \"batch\": 1, \"time_s\": 0.5, \"p10_s\": 0.25, "
      "\"status\": \"ok\", \"message\": \"\"},\n"
      "  {\"execution_space\": \"openmp\", \"dtype\": \"bf16\", \"batch\": 16, \"time_s\": null, \"p10_s\": "
      "null, "
      "\"status\": \"ok\", \"message\": \"no, \\\"memory\\\"\"}\n"
      "]\n");
  Report empty(layout(ReportFormat::json, {}));
  BOOST_TEST(empty.head() + empty.end() == "[]\n");
}

BOOST_AUTO_TEST_CASE(markdown_shows_what_people_read) {
  BOOST_TEST(printed(ReportFormat::markdown) ==
             "| space | dtype | batch | time | status | message |\n"
             "|---|---|---:|---:|---|---|\n"
             "| openmp | f32 | 1 | 1.0 ms | ok |  |\n"
             "| openmp | bf16 | 16 | 1.0 ms | ok | no, \"memory\" |\n");
}

BOOST_AUTO_TEST_CASE(a_table_that_is_too_wide_moves_labels_between_its_rows) {
  const std::string wide(60, 'x');
  Report r(layout(ReportFormat::table, {point("openmp", wide.c_str(), 1), point("openmp", wide.c_str(), 2),
                                        point(wide.c_str(), "f32", 1)}));
  std::string text = r.head();
  for (int i = 0; i < 3; ++i) text += r.row(result(1));
  BOOST_TEST(text ==
             "dtype                                                        batch   time status\n"
             "space openmp:\n" +
                 wide + "     1 1.0 ms ok\n" + wide + "     2 1.0 ms ok\n" + "space " + wide + ":\n" + "f32" +
                 std::string(58, ' ') + "    1 1.0 ms ok\n");
  BOOST_TEST(longest_line(text) <= report_width);
}

BOOST_AUTO_TEST_CASE(results_that_all_rows_share_are_in_the_line_before_where_all_are_known) {
  const std::string text =
      whole_report(layout(ReportFormat::table, {point("openmp", "f32", 1), point("openmp", "f32", 2)}),
                   {result(1), {{"2.0 ms", 2.0}, {""}, text_value("ok")}}, {"", ""});
  BOOST_TEST(text == "space openmp, dtype f32, status ok\nbatch   time\n    1 1.0 ms\n    2 2.0 ms\n");
}

BOOST_AUTO_TEST_CASE(colours_change_no_column) {
  Report::Layout wanted = layout(ReportFormat::table, {point("openmp", "f32", 1), point("serial", "f32", 1)});
  wanted.colours = true;
  Report r(wanted);
  std::vector<ReportValue> values = result(1);
  values[2].tone = Tone::bad;
  BOOST_TEST(r.row(values) == "openmp 1.0 ms \033[31mok    \033[0m\n");
}

BOOST_AUTO_TEST_CASE(prose_is_broken_at_words) {
  const std::string word(30, 'x'), three = word + " " + word + " " + word;  // 92 columns
  BOOST_TEST(wrapped("note: " + three + " tail, and\nshort\n", 2) ==
             "note: " + three + "\n  tail, and\nshort\n");
  BOOST_TEST(wrapped("a       " + three + " b " + three + " c", 8) ==
             "a       " + three + "\n        b " + word + " " + word + "\n        " + word + " c");
  const std::string full = "1234567 " + three;
  BOOST_TEST(full.size() == report_width);
  BOOST_TEST(wrapped(full, 2) == full);
  // A path stays whole; letters of two bytes have one column.
  const std::string path(120, 'y');
  BOOST_TEST(wrapped("  in " + path + " z\n", 4) == "  in\n    " + path + "\n    z\n");
  std::string letters;
  for (std::size_t i = 0; i < report_width / 2; ++i) letters += "\u00fc ";
  BOOST_TEST(wrapped(letters + "end", 2) == letters.substr(0, letters.size() - 1) + "\n  end");
  BOOST_TEST(wrapped("", 2) == "");
}

BOOST_AUTO_TEST_CASE(messages_are_broken_on_demand) {
  const std::string message = std::string(60, 'x') + " " + std::string(60, 'y');
  for (const bool wraps : {false, true}) {
    Report::Layout wanted = layout(ReportFormat::table, {point("openmp", "f32", 1)});
    wanted.wraps = wraps;
    const std::string text = Report(wanted).row(result(1), message);
    BOOST_TEST(text.find(wraps ? "x\n    y" : "x y") != std::string::npos);
  }
}

BOOST_AUTO_TEST_CASE(sizes_have_three_digits) {
  for (const auto& [bytes, shown] : {std::pair<std::int64_t, const char*>{0, "0 B"},
                                     {999, "999 B"},
                                     {1023, "1.00 KiB"},
                                     {std::int64_t(15) << 30, "15.0 GiB"},
                                     {std::int64_t(159) << 30, "159 GiB"},
                                     {(std::int64_t(1023) << 30), "1.00 TiB"},
                                     {-(std::int64_t(3) << 20), "-3.00 MiB"}})
    BOOST_TEST(bytes_value(bytes).shown == shown);
}

BOOST_AUTO_TEST_CASE(a_log_and_no_colour_have_no_colours) {
  std::FILE* log = std::tmpfile();
  BOOST_TEST(!shows_colour(log));
  std::fclose(log);
  BOOST_TEST(progress_text(0, 4, "a case", 0) == "[1/4] a case");
  BOOST_TEST(progress_text(1, 4, "a case", 10) == "[2/4] a case, about 30 s left");
  BOOST_TEST(rough_duration(7200) == "2 h 0 min");
}

BOOST_AUTO_TEST_CASE(completions_name_every_option_with_its_values) {
  const std::vector<CompletedOption> options{{{"-f", "--format"}, "Format", true, {"csv", "json"}},
                                             {{"--overwrite"}, "Replace [it]: don't ask", false, {}},
                                             {{"--set"}, "Key", true, {"a.b=", "a.c="}, false, true}};
  const std::string bash = completion_text("kformer-layer", options, Shell::bash);
  BOOST_TEST(bash.find("-f|--format) COMPREPLY=($(compgen -W 'csv json'") != std::string::npos);
  BOOST_TEST(bash.find("--set) compopt -o nospace 2>/dev/null; COMPREPLY=($(compgen -W 'a.b= a.c='") !=
             std::string::npos);
  BOOST_TEST(bash.find("complete -o filenames -F _kformer_layer kformer-layer") != std::string::npos);
  const std::string zsh = completion_text("kformer-layer", options, Shell::zsh);
  BOOST_TEST(zsh.starts_with("#compdef kformer-layer\n"));
  BOOST_TEST(zsh.find("'*--format=[Format]:value:(csv json)'") != std::string::npos);
  BOOST_TEST(zsh.find("'*--overwrite[Replace \\[it\\]\\: don'\\''t ask]'") != std::string::npos);
  BOOST_TEST(zsh.find("'*--set=[Key]:value:{compadd -S \"\" -- a.b= a.c=}'") != std::string::npos);
  BOOST_TEST(completion_text("kformer-layer", options, Shell::fish) ==
             "complete -c kformer-layer -s f -l format -x -a 'csv json' -d 'Format'\n"
             "complete -c kformer-layer -l overwrite -d 'Replace [it]: don'\\''t ask'\n"
             "complete -c kformer-layer -l set -x -a 'a.b= a.c=' -d 'Key'\n");
}

// Counted by their publishers.
BOOST_AUTO_TEST_CASE(published_models_have_their_numbers_of_parameters) {
  const std::vector<std::pair<const char*, std::int64_t>> published{
      {"llama-2-7b", 6738415616},     {"llama-2-13b", 13015864320}, {"llama-2-70b", 68976648192},
      {"tinyllama-1.1b", 1100048384}, {"llama-3.1-8b", 8030261248}, {"llama-3.1-70b", 70553706496},
      {"llama-3.2-1b", 1235814400},   {"llama-3.2-3b", 3212749824}, {"smollm2-135m", 134515008},
      {"smollm2-360m", 361821120},    {"smollm2-1.7b", 1711376384}, {"mistral-7b", 7248023552},
      {"qwen2.5-0.5b", 494032768},    {"qwen2.5-1.5b", 1543714304}, {"qwen2.5-3b", 3085938688},
      {"qwen2.5-7b", 7615616512},     {"qwen2.5-14b", 14770033664}, {"qwen2.5-32b", 32763876352},
      {"qwen2.5-72b", 72706203648},   {"qwen3-0.6b", 596049920},    {"qwen3-1.7b", 1720574976},
      {"qwen3-4b", 4022468096},       {"qwen3-8b", 8190735360},     {"qwen3-14b", 14768307200},
      {"qwen3-32b", 32762123264}};
  for (const auto& [name, parameters] : published) {
    const ModelPreset* preset = model_preset(name);
    BOOST_REQUIRE(preset != nullptr);
    BOOST_TEST(preset->model.model_parameter_count() == parameters,
               name << ": " << preset->model.model_parameter_count());
  }
  BOOST_TEST(model_presets().size() == published.size() + 1);
  BOOST_TEST(model_preset("llama-3.1-405b")->model.model_parameter_count() == 405853388800);
}

BOOST_AUTO_TEST_CASE(published_models_have_the_names_of_their_hubs) {
  const std::vector<std::pair<const char*, const char*>> names{
      {"meta-llama/Llama-3.2-1B-Instruct", "llama-3.2-1b"},
      {"meta-llama/Meta-Llama-3.1-8B-Instruct", "llama-3.1-8b"},
      {"meta-llama/Llama-2-7b-chat-hf", "llama-2-7b"},
      {"TinyLlama/TinyLlama-1.1B-Chat-v1.0", "tinyllama-1.1b"},
      {"mistralai/Mistral-7B-Instruct-v0.3", "mistral-7b"},
      {"Qwen/Qwen3-8B-Base", "qwen3-8b"}};
  for (const auto& [published, name] : names) {
    BOOST_REQUIRE_MESSAGE(model_preset(published) != nullptr, published);
    BOOST_TEST(model_preset(published)->name == name);
  }
  // Of another shape.
  for (const char* other : {"llama", "mistralai/Mistral-7B-v0.1", "Qwen/Qwen2.5-7B-Instruct-1M", "-chat"})
    BOOST_TEST(model_preset(other) == nullptr, other);
}

BOOST_AUTO_TEST_CASE(a_published_model_overrides_the_keys_of_a_layer) {
  const auto overrides = layer_model_overrides("llama-3.2-1b");
  for (const char* wanted : {"model.hidden_size = 2048", "model.rope_scaling.factor = 32.0"})
    BOOST_TEST(std::ranges::count(overrides, wanted) == 1, wanted);
  BOOST_CHECK_EXCEPTION(layer_model_overrides("llama-3.2-2b"), FileError, [](const FileError& error) {
    return std::string(error.what()).find("did you mean 'llama-3.2-1b'") != std::string::npos;
  });
  BOOST_CHECK_EXCEPTION(
      layer_model_overrides("mistralai/Mistral-7B-v0.1"), FileError, [](const FileError& error) {
        return std::string(error.what()).find("did you mean 'mistral-7b'") != std::string::npos;
      });
}

BOOST_AUTO_TEST_SUITE_END()
