// SPDX-License-Identifier: MIT
#include "kformer/io/result_file.hpp"

#include <sys/stat.h>
#include <unistd.h>

#include <boost/test/unit_test.hpp>
#include <cmath>
#include <limits>

#include "cases_table.hpp"
#include "error_text.hpp"
#include "file_size_limit.hpp"
#include "hdf5_reader.hpp"
#include "scratch_directory.hpp"
#include "support/skipped.hpp"

namespace {

using namespace kformer;
using namespace kformer::Testing;

void fill_sample(ResultFile& file) {
  file.root().attribute("kind", "layer_sweep").attribute("title", "größer als ASCII");
  auto& provenance = file.group("provenance");
  provenance.attribute("n_ranks", 1)
      .attribute("device_total_bytes", std::uint64_t{1} << 40)
      .attribute("load", 0.5);
  provenance.text("deck_text", std::string(200'000, '#') + "\nschema = 1\n", "exact bytes of the deck");
  provenance.text("overrides", "", "one --set per line");
  auto& cases = file.table("cases", "case", "number of the case");
  cases = cases_table();
  cases.attribute("flops_formula", "2 m n k");
  cases.append(plain_row(512));
  cases.append({{"impl", "standard"},
                {"seq_len", 4096},
                {"time", std::vector<double>{}},
                {"energy", 2.5},
                {"token", std::vector{7, 8, 9}},
                {"status", "out_of_memory"},
                {"causal", "yes"},
                {"peak_bytes", std::vector{0, 0}}});
  auto& machine = file.table("machine", "execution_space", "execution space");
  machine.column({.name = "execution_space", .type = ColumnType::text, .long_name = "execution space"});
  machine.column({.name = "matmul_rate_f32", .units = "1/s", .long_name = "measured rate of a matrix product"});
  machine.append({{"execution_space", "OpenMP"}, {"matmul_rate_f32", 1e11}});
  auto& by_length = file.table("comparison", "configuration", "configuration");
  by_length.numbered_dimension("seq_len", "sequence length", {512, 65536}, "tokens");
  by_length.column({.name = "speedup", .long_name = "speed-up", .along = "seq_len"});
  by_length.append({{"speedup", std::vector{1.5, 2.5}}});
  auto& empty_rows = file.table("memory/timeline", "event", "allocation");
  empty_rows.dimension("sample", "sample of the event");
  empty_rows.column({.name = "trace", .units = "s", .long_name = "nothing was sampled", .along = "sample"});
  empty_rows.append({{"trace", std::vector<double>{}}});
  file.table("kernels", "kernel", "kernel")
      .column({.name = "count", .type = ColumnType::i64, .long_name = "calls"});
}

}  // namespace

BOOST_AUTO_TEST_SUITE(result_file)

BOOST_AUTO_TEST_CASE(everything_written_is_read_back) {
  const ScratchDirectory scratch;
  // The notebook test opens this very file with Python's readers.
  const char* kept = std::getenv("KFORMER_SAMPLE_RESULT");
  const std::filesystem::path path = kept != nullptr ? std::filesystem::path(kept) : scratch / "sample.h5";
  {
    ResultFile file(path, {.overwrite = kept != nullptr});
    fill_sample(file);
    file.finish();
  }
  const Hdf5Reader reader(path);
  BOOST_TEST(reader.text_attribute("/", "schema") == "kformer-results");
  BOOST_TEST(reader.text_attribute("/", "schema_version") == "1.1");
  BOOST_TEST(reader.text_attribute("/", "Conventions") == "CF-1.10 kformer-1.1");
  BOOST_TEST(reader.text_attribute("/", "title") == "größer als ASCII");
  BOOST_TEST(reader.number_attribute("/", "complete") == 1);
  BOOST_TEST(reader.number_attribute("/provenance", "device_total_bytes") == std::ldexp(1.0, 40));
  BOOST_TEST(reader.texts("/provenance/deck_text").at(0).size() == 200'012);
  BOOST_TEST(reader.texts("/provenance/overrides").at(0) == "");
  BOOST_TEST(reader.text_attribute("/cases", "flops_formula") == "2 m n k");

  const std::vector<std::string> order{"case",   "repeat", "memory_class", "impl",   "seq_len",   "time",
                                       "energy", "token",  "status",       "causal", "peak_bytes"};
  BOOST_TEST(reader.names("/cases") == order, boost::test_tools::per_element());
  for (const auto& name : order) BOOST_TEST(reader.has_scales("/cases/" + name), name);
  BOOST_TEST(reader.numbers("/cases/case") == (std::vector<double>{0, 1}), boost::test_tools::per_element());
  BOOST_TEST(reader.texts("/cases/memory_class") == (std::vector<std::string>{"weights", "workspace"}),
             boost::test_tools::per_element());
  BOOST_TEST(reader.texts("/cases/impl") == (std::vector<std::string>{"flash", "standard"}),
             boost::test_tools::per_element());
  BOOST_TEST(reader.numbers("/cases/status") == (std::vector<double>{0, 1}), boost::test_tools::per_element());
  BOOST_TEST(reader.numbers("/cases/causal") == (std::vector<double>{0, 1}), boost::test_tools::per_element());
  BOOST_TEST(reader.numbers("/cases/token") == (std::vector<double>{-1, -1, -1, 7, 8, 9}),
             boost::test_tools::per_element());
  BOOST_TEST(reader.numbers("/cases/peak_bytes") == (std::vector<double>{1, std::ldexp(1.0, 63), 0, 0}),
             boost::test_tools::per_element());
  BOOST_TEST(reader.extents("/cases/time") == (std::vector<hsize_t>{2, 3}), boost::test_tools::per_element());
  const auto time = reader.numbers("/cases/time");
  BOOST_TEST((time[0] == 0.5 && time[1] == 0.25));
  for (std::size_t i = 2; i < time.size(); ++i) BOOST_TEST(std::isnan(time[i]));
  BOOST_TEST(std::isnan(reader.numbers("/cases/energy")[0]));
  BOOST_TEST(reader.numbers("/cases/energy")[1] == 2.5);
  BOOST_TEST(reader.text_attribute("/cases/time", "units") == "s");
  BOOST_TEST(reader.text_attribute("/cases/status", "flag_meanings") == "ok out_of_memory");
  BOOST_TEST(std::isnan(reader.number_attribute("/cases/time", "_FillValue")));

  BOOST_TEST(reader.names("/machine") == (std::vector<std::string>{"execution_space", "matmul_rate_f32"}),
             boost::test_tools::per_element());
  BOOST_TEST(reader.numbers("/comparison/seq_len") == (std::vector<double>{512, 65536}),
             boost::test_tools::per_element());
  BOOST_TEST(reader.text_attribute("/comparison/seq_len", "units") == "tokens");
  BOOST_TEST(reader.has_scales("/comparison/speedup"));
  BOOST_TEST(reader.numbers("/comparison/speedup") == (std::vector<double>{1.5, 2.5}),
             boost::test_tools::per_element());
  BOOST_TEST(reader.extents("/memory/timeline/trace") == (std::vector<hsize_t>{1, 0}),
             boost::test_tools::per_element());
  BOOST_TEST(!reader.has("/kernels"));
}

BOOST_AUTO_TEST_CASE(large_tables_are_chunked_and_compressed) {
  const ScratchDirectory scratch;
  ResultFile file(scratch / "large.h5");
  auto& events = file.table("events", "event", "event");
  events.dimension("sample", "sample");
  events.column({.name = "x", .long_name = "samples", .along = "sample"});
  std::vector<double> samples(500);
  for (int row = 0; row < 400; ++row) {
    samples[0] = row;
    events.append({{"x", samples}});
  }
  file.finish();
  const Hdf5Reader reader(file.path());
  const auto x = reader.numbers("/events/x");
  BOOST_TEST(x.size() == 200'000);
  BOOST_TEST(x[399 * 500] == 399);
  BOOST_TEST(std::filesystem::file_size(file.path()) < x.size());
}

BOOST_AUTO_TEST_CASE(the_same_contents_give_the_same_bytes) {
  const ScratchDirectory scratch;
  for (const char* name : {"a.h5", "b.h5"}) {
    ResultFile file(scratch / name);
    fill_sample(file);
    file.finish();
  }
  BOOST_TEST((contents_of(scratch / "a.h5") == contents_of(scratch / "b.h5")));
}

BOOST_AUTO_TEST_CASE(bytes_that_are_not_utf8_do_not_spoil_the_file) {
  const ScratchDirectory scratch;
  ResultFile file(scratch / "bytes.h5");
  file.root().text("command_line",
                   std::string("a\xFF"
                               "b\0c\xC3\xA9\xED\xA0\x80",
                               10),
                   "as called");
  file.finish();
  const std::string bad = "\xEF\xBF\xBD";
  BOOST_TEST(Hdf5Reader(file.path()).texts("/command_line").at(0) ==
             "a" + bad + "b" + bad + "c\xC3\xA9" + bad + bad + bad);
}

BOOST_AUTO_TEST_CASE(the_part_file_holds_the_last_checkpoint_until_the_end) {
  const ScratchDirectory scratch;
  ResultFile file(scratch / "run.h5");
  auto& cases = file.table("cases", "case", "number of the case");
  cases = cases_table();
  BOOST_TEST(!Hdf5Reader(file.part_path()).has("/cases"));
  cases.append(plain_row(1));
  file.checkpoint();
  cases.append(plain_row(2));
  BOOST_TEST(Hdf5Reader(file.part_path()).extents("/cases/impl").at(0) == 1);
  BOOST_TEST(Hdf5Reader(file.part_path()).number_attribute("/", "complete") == 0);
  BOOST_TEST(!std::filesystem::exists(file.path()));
  file.finish();
  BOOST_TEST(!std::filesystem::exists(file.part_path()));
  BOOST_TEST(Hdf5Reader(file.path()).extents("/cases/impl").at(0) == 2);
}

BOOST_AUTO_TEST_CASE(existing_results_are_never_replaced_unasked) {
  const ScratchDirectory scratch;
  const auto path = scratch / "run.h5";
  ResultFile(path).finish();
  const std::string precious = contents_of(path);
  BOOST_TEST(error_text([&] { ResultFile{path}; }) ==
             "'" + path.string() +
                 "' exists already; choose another name, or allow overwriting (--overwrite, in a "
                 "deck output.overwrite = true)");
  BOOST_TEST(!std::filesystem::exists(path.string() + ".part"));
  {
    ResultFile unfinished(path, {.overwrite = true});
    auto& cases = unfinished.table("cases", "case", "number of the case");
    cases = cases_table();
    cases.append(plain_row(1));
    unfinished.checkpoint();
  }
  BOOST_TEST(contents_of(path) == precious);
  std::filesystem::remove(path);
  BOOST_TEST(
      contains(error_text([&] { ResultFile{path}; }), ".part' exists already; it holds the finished cases"));
  ResultFile file(path, {.overwrite = true});
  file.finish();
  BOOST_TEST(Hdf5Reader(path).number_attribute("/", "complete") == 1);

  ResultFile slow(scratch / "slow.h5");
  put_contents(slow.path(), "of another run");
  BOOST_TEST(
      contains(error_text([&] { slow.finish(); }), "whose results are in '" + slow.part_path().string() + "'"));
  BOOST_TEST(contents_of(slow.path()) == "of another run");
}

BOOST_AUTO_TEST_CASE(only_result_files_are_replaced) {
  const ScratchDirectory scratch;
  for (const std::string name : {"deck.toml", "other.h5.part"}) {
    put_contents(scratch / name, "schema = 1");
    const auto file = scratch / (name == "deck.toml" ? name : "other.h5");
    BOOST_TEST(error_text([&] { ResultFile(file, {.overwrite = true}); }) ==
               "'" + (scratch / name).string() + "' exists already; it is not a " +
                   (name == "deck.toml"
                        ? "result file and is never replaced; choose another name"
                        : "whole result file and is never replaced; remove it, or choose another name"));
    BOOST_TEST(contents_of(scratch / name) == "schema = 1");
  }
}

BOOST_AUTO_TEST_CASE(hdf5_files_of_others_are_not_replaced) {
  const ScratchDirectory scratch;
  const auto path = scratch / "data.h5";
  hdf5::File(hdf5::check(H5Fcreate(path.c_str(), H5F_ACC_EXCL, H5P_DEFAULT, H5P_DEFAULT), "create", "data.h5"));
  const std::string contents = contents_of(path);
  BOOST_TEST(error_text([&] { ResultFile(path, {.overwrite = true}); }) ==
             "'" + path.string() +
                 "' exists already; it is not a result file and is never replaced; choose another name");
  BOOST_TEST((contents_of(path) == contents));
}

BOOST_AUTO_TEST_CASE(a_run_that_finished_no_case_does_not_block_the_next) {
  const ScratchDirectory scratch;
  std::string killed;  // what a run leaves that cannot tidy up
  BOOST_CHECK_THROW(
      {
        const ResultFile failed(scratch / "run.h5");
        killed = contents_of(scratch / "run.h5.part");
        throw Error("no weights");
      },
      Error);
  BOOST_TEST(!std::filesystem::exists(scratch / "run.h5.part"));
  put_contents(scratch / "run.h5.part", killed);
  ResultFile(scratch / "run.h5").finish();
  BOOST_TEST(std::filesystem::exists(scratch / "run.h5"));
}

BOOST_AUTO_TEST_CASE(two_runs_do_not_write_one_file) {
  const ScratchDirectory scratch;
  const auto path = scratch / "run.h5";
  {
    ResultFile first(path, {.overwrite = true});
    BOOST_TEST(error_text([&] { ResultFile(path, {.overwrite = true}); }) ==
               "'" + path.string() +
                   "' is being written by another run; wait until it ends, or choose another name");
    first.finish();
  }
  ResultFile(path, {.overwrite = true}).finish();
  BOOST_TEST(!std::filesystem::exists(path.string() + ".lock"));
}

BOOST_AUTO_TEST_CASE(links_that_somebody_planted_are_not_followed) {
  const ScratchDirectory scratch;
  const auto victim = scratch / "victim";
  put_contents(victim, "precious");
  for (const char* name : {"run.h5.part.tmp", "run.h5.tmp"})
    std::filesystem::create_symlink(victim, scratch / name);
  ResultFile(scratch / "run.h5").finish();
  BOOST_TEST(contents_of(victim) == "precious");
}

BOOST_AUTO_TEST_CASE(a_lock_is_a_file) {
  const ScratchDirectory scratch;
  const auto path = scratch / "run.h5", lock = scratch / "run.h5.lock", victim = scratch / "victim";
  put_contents(victim, "precious");
  const auto expect_refusal = [&] {
    BOOST_TEST(error_text([&] { ResultFile{path}; }) ==
               "'" + lock.string() + "' is not a regular file, and cannot lock '" + path.string() +
                   "'; remove it, or choose another name");
    std::filesystem::remove(lock);
  };
  std::filesystem::create_symlink(victim, lock);
  expect_refusal();
  std::filesystem::create_directory(lock);
  expect_refusal();
  BOOST_REQUIRE(::mkfifo(lock.c_str(), 0600) == 0);
  expect_refusal();
  BOOST_TEST(contents_of(victim) == "precious");
}

BOOST_AUTO_TEST_CASE(a_full_disk_is_an_error_and_loses_nothing) {
  const ScratchDirectory scratch;
  ResultFile file(scratch / "run.h5");
  auto& cases = file.table("cases", "case", "number of the case");
  cases = cases_table();
  cases.append(plain_row(1));
  file.checkpoint();
  file.root().text("log", std::string(1'000'000, '.'), "long text");
  {
    const FileSizeLimit limit(100'000);
    BOOST_CHECK_THROW(file.checkpoint(), FileError);
    BOOST_TEST(error_text([&] { file.checkpoint(); }) ==
               "cannot write '" + file.part_path().string() +
                   "': File too large; the existing file is unchanged");
  }
  BOOST_TEST(Hdf5Reader(file.part_path()).extents("/cases/impl").at(0) == 1);
  for (const auto& entry : std::filesystem::directory_iterator(scratch.path()))
    BOOST_TEST(entry.path().extension() != ".tmp");
  file.finish();
  BOOST_TEST(Hdf5Reader(file.path()).texts("/log").at(0).size() == 1'000'000);
}

BOOST_AUTO_TEST_CASE(a_place_that_cannot_be_written_is_refused_before_any_work) {
  const ScratchDirectory scratch;
  BOOST_CHECK_THROW(ResultFile(scratch / "missing/run.h5"), FileError);
  BOOST_TEST(
      contains(error_text([&] { ResultFile(scratch / "missing/run.h5"); }), "No such file or directory"));

  const auto locked = scratch / "locked";
  std::filesystem::create_directory(locked);
  ::chmod(scratch.path().c_str(), 0755);
  ::chmod(locked.c_str(), 0555);
  // The superuser may write everywhere; try as another user.
  constexpr uid_t nobody = 65534;
  const bool is_root = ::geteuid() == 0;
  if (is_root && ::seteuid(nobody) != 0) {
    say_skipped_in_part("the superuser may write everywhere, and cannot become another user here");
    return;
  }
  const std::string text = error_text([&] { ResultFile(locked / "run.h5"); });
  if (is_root) BOOST_REQUIRE(::seteuid(0) == 0);
  ::chmod(locked.c_str(), 0755);
  BOOST_TEST(text == "cannot write '" + (locked / "run.h5.part").string() + "': Permission denied");
}

BOOST_AUTO_TEST_CASE(rows_are_checked_and_a_refused_row_changes_nothing) {
  Table table = cases_table();
  table.append(plain_row(1));
  const auto with = [&](const std::string& name, const kformer::Value& value) {
    auto row = plain_row(2);
    std::erase_if(row, [&](const Table::Cell& cell) { return cell.first == name; });
    row.emplace_back(name, value);
    return error_text([&] { table.append(row); });
  };
  const std::string start = "kformer::Table::append: table 'cases': ";
  BOOST_TEST(with("tme", 1.0) == start + "no column 'tme'; did you mean 'time'?");
  BOOST_TEST(with("status", "okay") ==
             start + "column 'status' has no meaning 'okay'; known: ok, out_of_memory");
  for (const int flag : {-1, 2})
    BOOST_TEST(with("status", flag) == start + "column 'status' has no meaning " + std::to_string(flag));
  BOOST_TEST(with("seq_len", 2.5) ==
             start +
                 "column 'seq_len' holds 64-bit integers, and the value given is not one or is out of range");
  BOOST_TEST(contains(with("seq_len", std::numeric_limits<std::uint64_t>::max()), "is out of range"));
  BOOST_TEST(contains(with("peak_bytes", std::vector{1, -1}), "unsigned 64-bit integers"));
  BOOST_TEST(with("peak_bytes", std::vector{1}) ==
             start + "column 'peak_bytes' takes 2 items, one per memory_class, not 1");
  BOOST_TEST(with("impl", 3) ==
             start + "column 'impl' holds texts, and the value given is not one or is out of range");
  BOOST_TEST(with("energy", std::vector{1.0}) == start + "column 'energy' takes one item per row, not a list");
  auto row = plain_row(2);
  row.emplace_back("seq_len", 3);
  BOOST_TEST(error_text([&] { table.append(row); }) == start + "column 'seq_len' is given twice");
  BOOST_TEST(error_text([&] { table.append({{"impl", "flash"}}); }) ==
             start + "the row lacks column 'seq_len', which has no fill value");
  BOOST_TEST(table.rows() == 1);
  for (const auto& data : table.columns()) {
    BOOST_TEST(data.lengths.size() == (data.column.along.empty() ? 0 : 1));
  }
}

BOOST_AUTO_TEST_CASE(declarations_are_checked) {
  const auto refused = [](const kformer::Column& column) {
    Table table = cases_table();
    return error_text([&] { table.column(column); });
  };
  const std::string start = "kformer::Table::column: table 'cases': column 'x' ";
  BOOST_TEST(refused({.name = "x"}) == start + "needs a long_name");
  BOOST_TEST(refused({.name = "x", .long_name = "x", .along = "y"}) ==
             start + "is along 'y', which is not a dimension");
  BOOST_TEST(refused({.name = "x", .type = ColumnType::i64, .long_name = "x", .along = "repeat"}) ==
             start + "needs a fill value, because its rows may differ in length");
  BOOST_TEST(refused({.name = "x", .long_name = "x", .fill = 0}) ==
             start + "cannot have a fill value: only integers and flags can");
  BOOST_TEST(refused({.name = "x", .type = ColumnType::i32, .long_name = "x", .fill = 1LL << 40}) ==
             start + "has a fill value out of its range");
  BOOST_TEST(refused({.name = "x", .type = ColumnType::flag, .long_name = "x"}) ==
             start + "must have meanings if and only if it is a flag");
  BOOST_TEST(refused({.name = "x", .type = ColumnType::flag, .long_name = "x", .meanings = {"two words"}}) ==
             start + "has the meaning 'two words'; meanings are single words");
  BOOST_TEST(contains(refused({.name = "time", .long_name = "x"}), "has a name that is taken"));
  BOOST_TEST(contains(refused({.name = "repeat", .long_name = "x"}), "has a name that is taken"));
  Table table = cases_table();
  table.append(plain_row(1));
  BOOST_TEST(contains(error_text([&] { table.column({.name = "x", .long_name = "x"}); }),
                      "comes after the first row"));
  BOOST_TEST(contains(error_text([&] { table.dimension("case", "x"); }), "the name 'case' is taken"));

  const ScratchDirectory scratch;
  ResultFile file(scratch / "run.h5");
  file.table("cases", "case", "case");
  BOOST_TEST(contains(error_text([&] { file.table("cases", "case", "case"); }), "'cases' exists already"));
  BOOST_TEST(contains(error_text([&] { file.group("cases"); }), "'cases' is a table"));
  BOOST_TEST(contains(error_text([&] { ResultFile(scratch / "b.h5", {.compression = 10}); }),
                      "must be 0 to 9, not 10"));
}

BOOST_AUTO_TEST_CASE(the_schema_is_what_was_declared) {
  ResultFile file({}, {.discard = true});
  file.root().attribute("kind", "trial", "kind of the run");
  Table& table = file.table("a/b", "step", "step of a trial");
  table.when("with steps");
  table.dimension("part", "part of a step", {"first"});
  table.column(finite_if_ok({"time", ColumnType::f64, "s", "of all parts", "part"}));
  table.column({"seed", ColumnType::i32, "1", "of the draws", "", {}, -1});
  std::string schema = file.schema();
  std::erase_if(schema, [](char c) { return c == ' ' || c == '\n'; });
  BOOST_TEST(contains(schema, R"("kind":{"type":"text","description":"kindoftherun"})"));
  BOOST_TEST(contains(schema,
                      R"("/a/b":{"rows":"stepofatrial","when":"withsteps","attributes":{},"datasets":{)"
                      R"("step":{"type":"i32","dims":["step"],"units":"1","description":"stepofatrial"},)"
                      R"("part":{"type":"text","dims":["part"],"description":"partofastep"},)"
                      R"("time":{"type":"f64","dims":["step","part"],"units":"s",)"
                      R"("description":"ofallparts","nan":"unlessok"},)"
                      R"("seed":{"type":"i32","dims":["step"],"units":"1","description":"ofthedraws",)"
                      R"("fill":-1}}})"));
}

BOOST_AUTO_TEST_CASE(hdf5_errors_carry_the_innermost_reason) {
  const ScratchDirectory scratch;
  put_contents(scratch / "no.h5", "this is no HDF5 file");
  BOOST_TEST(error_text([&] { Hdf5Reader{scratch / "no.h5"}; }) ==
             "HDF5 cannot open '" + (scratch / "no.h5").string() + "': file signature not found");
  ResultFile(scratch / "empty.h5").finish();
  const Hdf5Reader reader(scratch / "empty.h5");
  const std::string text = error_text([&] { reader.numbers("/cases/time"); });
  BOOST_TEST(
      contains(text, "HDF5 cannot open '/cases/time' in '/' of '" + (scratch / "empty.h5").string() + "': "));
  BOOST_TEST(!kformer::hdf5_version().empty());
}

BOOST_AUTO_TEST_SUITE_END()
