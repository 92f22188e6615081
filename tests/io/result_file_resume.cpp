// SPDX-License-Identifier: MIT
#include <boost/test/unit_test.hpp>
#include <cmath>
#include <filesystem>

#include "cases_table.hpp"
#include "error_text.hpp"
#include "hdf5_reader.hpp"
#include "kformer/core/error.hpp"
#include "kformer/io/result_file.hpp"
#include "scratch_directory.hpp"

namespace {

using namespace kformer;
using namespace kformer::Testing;

// All that a column can be, with rows of different lengths.
void append_rows(Table& table) {
  table.append(plain_row(1));
  auto longer = plain_row(1024);
  for (auto& [name, value] : longer)
    if (name == "time") value = std::vector{1.0, 2.0, 3.0};
  longer.emplace_back("energy", 2.5);
  longer.emplace_back("token", std::vector{7, 8});
  table.append(longer);
}

void check_same_rows(const Table& found, const Table& wanted) {
  BOOST_TEST(found.rows() == wanted.rows());
  for (std::size_t i = 0; i < wanted.columns().size(); ++i) {
    const Table::Data &data = found.columns()[i], &expected = wanted.columns()[i];
    BOOST_TEST(data.lengths == expected.lengths);
    if (expected.column.name == "energy")  // which the first row lacks
      BOOST_TEST(std::get<std::vector<double>>(data.items)[1] == 2.5);
    else
      BOOST_TEST((data.items == expected.items), expected.column.name);
  }
}

}  // namespace

BOOST_AUTO_TEST_SUITE(result_file_resume)

BOOST_AUTO_TEST_CASE(an_unfinished_run_is_resumed) {
  const ScratchDirectory scratch;
  const auto path = scratch / "run.h5";
  const auto declare = [](ResultFile& file) -> Table& {
    return file.table("cases", "case", "number of the case") = cases_table();
  };
  const auto whole = scratch / "whole.h5";
  {
    ResultFile file(whole);
    Table& cases = declare(file);
    append_rows(cases);
    cases.append(plain_row(3));
    file.finish();
    ResultFile first(path, {.resume = true});
    BOOST_TEST(!first.resumes());
    Table& begun = declare(first);
    first.restore();
    BOOST_TEST(begun.rows() == 0);
    first.root().attribute("kind", "layer_sweep").attribute("count", 7);
    first.group("provenance").text("deck_text", "größer", "deck");
    append_rows(begun);
    first.checkpoint();
  }
  ResultFile file(path, {.resume = true});
  BOOST_TEST(file.resumes());
  // Until they are taken the rows are where they were.
  BOOST_TEST(Hdf5Reader(file.part_path()).numbers("cases/seq_len") == (std::vector<double>{1, 1024}));
  BOOST_TEST(file.unfinished_text("", "kind") == "layer_sweep");
  BOOST_TEST(file.unfinished_text("", "count") == "7");
  BOOST_TEST(file.unfinished_text("provenance", "deck_text") == "größer");
  BOOST_TEST(file.unfinished_text("provenance", "none").empty());
  BOOST_TEST(file.unfinished_text("none", "none").empty());
  Table& cases = declare(file);
  file.restore();
  BOOST_TEST(!file.resumes());
  BOOST_TEST(cases.rows() == 2);
  Table expected = cases_table();
  append_rows(expected);
  check_same_rows(cases, expected);
  using Times = std::vector<double>;
  BOOST_TEST(std::get<Times>(cases.value("time", 1).items()) == (Times{1, 2, 3}));
  BOOST_TEST(std::get<std::vector<std::string>>(cases.value("impl", 1).items()).front() == "flash");
  cases.append(plain_row(3));
  file.finish();
  BOOST_TEST(!std::filesystem::exists(file.part_path()));
  for (const char* column : {"time", "token", "peak_bytes", "seq_len"}) {
    const std::string name = std::string("cases/") + column;
    const Hdf5Reader resumed(path), uninterrupted(whole);
    BOOST_TEST(resumed.extents(name) == uninterrupted.extents(name));
    const auto found = resumed.numbers(name), wanted = uninterrupted.numbers(name);
    for (std::size_t i = 0; i < wanted.size(); ++i)
      BOOST_TEST((found[i] == wanted[i] || (std::isnan(found[i]) && std::isnan(wanted[i]))));
  }
  // A run that came to its end is none to resume.
  const auto gone = [](ResultFile) {};
  gone(std::move(file));
  BOOST_TEST(contains(error_text([&] { ResultFile(path, {.resume = true}); }), "exists already"));
}

BOOST_AUTO_TEST_CASE(rows_that_are_dropped_leave_those_before) {
  Table table = cases_table(), expected = cases_table();
  append_rows(expected);
  append_rows(table);
  append_rows(table);
  table.keep_rows(5);
  BOOST_TEST(table.rows() == 4);
  table.keep_rows(2);
  check_same_rows(table, expected);
  table.keep_rows(0);
  append_rows(table);
  check_same_rows(table, expected);
}

BOOST_AUTO_TEST_CASE(a_run_with_other_columns_is_not_resumed) {
  const ScratchDirectory scratch;
  const auto path = scratch / "run.h5";
  const auto with_column = [](ResultFile& file, const std::string& name, const std::string& along) -> Table& {
    Table& table = file.table("cases", "case", "number of the case");
    table.dimension("repeat", "timed repetition");
    table.column({.name = "a", .long_name = "a"}).column({.name = name, .long_name = "b", .along = along});
    return table;
  };
  {
    ResultFile file(path);
    with_column(file, "b", "").append({{"a", 1.0}, {"b", 2.0}});
    file.checkpoint();
  }
  const auto refused = [&](const std::string& name, const std::string& along) {
    ResultFile file(path, {.resume = true});
    with_column(file, name, along);
    return error_text([&] { file.restore(); });
  };
  BOOST_TEST(contains(refused("c", ""), "column 'c' of 'cases' is missing"));
  BOOST_TEST(contains(refused("b", "repeat"), "column 'b' of 'cases' has other dimensions"));
  const auto fails_before_it_takes_rows = [&] {
    const ResultFile file(path, {.resume = true});
    throw Error("other settings");
  };
  BOOST_CHECK_THROW(fails_before_it_takes_rows(), Error);
  BOOST_TEST(Hdf5Reader(path.string() + ".part").numbers("cases/b") == (std::vector<double>{2}));
}

BOOST_AUTO_TEST_CASE(a_file_is_not_believed_in_its_sizes) {
  const ScratchDirectory scratch;
  const auto path = scratch / "run.h5";
  const auto declare = [](ResultFile& file) -> Table& {
    return file.table("cases", "case", "number of the case").column({.name = "a", .long_name = "a"});
  };
  {
    ResultFile file(path);
    declare(file).append({{"a", 1.0}});
    file.checkpoint();
  }
  {
    const hdf5::File part(H5Fopen((path.string() + ".part").c_str(), H5F_ACC_RDWR, H5P_DEFAULT));
    const hsize_t many = hsize_t{1} << 40, some = 64;
    const hdf5::Dataspace space(H5Screate_simple(1, &many, nullptr)), list(H5Screate_simple(1, &some, nullptr));
    const hdf5::PropertyList made(H5Pcreate(H5P_DATASET_CREATE));
    H5Pset_chunk(made.get(), 1, &some);
    BOOST_REQUIRE(H5Ldelete(part.get(), "cases/a", H5P_DEFAULT) >= 0);
    const hdf5::Dataset dataset(H5Dcreate2(part.get(), "cases/a", H5T_NATIVE_DOUBLE, space.get(), H5P_DEFAULT,
                                           made.get(), H5P_DEFAULT));
    const hdf5::Attribute attribute(
        H5Acreate2(part.get(), "count", H5T_NATIVE_INT64, list.get(), H5P_DEFAULT, H5P_DEFAULT));
    const std::vector<std::int64_t> numbers(some, 7);
    BOOST_REQUIRE(H5Awrite(attribute.get(), H5T_NATIVE_INT64, numbers.data()) >= 0);
  }
  ResultFile file(path, {.resume = true});
  BOOST_TEST(file.unfinished_text("", "count").empty());
  declare(file);
  BOOST_TEST(error_text([&] { file.restore(); }) ==
             "'" + file.part_path().string() +
                 "' cannot be continued: 'a' has 1099511627776 values in 0 bytes");
}

BOOST_AUTO_TEST_SUITE_END()
