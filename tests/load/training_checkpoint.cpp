// SPDX-License-Identifier: MIT
#include "kformer/load/training_checkpoint.hpp"

#include <cstring>

#include "io/file_size_limit.hpp"
#include "io/resident.hpp"
#include "io/scratch_directory.hpp"
#include "io/xxh64.hpp"
#include "load/checkpoint_arrays.hpp"
#include "support/errors.hpp"
#include "train/training_run.hpp"

namespace kformer::Testing {
namespace {

template <class F>
std::string file_error(F f) {
  try {
    f();
  } catch (const FileError& error) {
    return error.what();
  }
  return "no error";
}

// Two checkpoints, of steps 1 and 2.
struct TwoCheckpoints {
  TwoCheckpoints() {
    const Arrays arrays(1);
    CheckpointWriter<Exec> writer({.folder = scratch.path()}, arrays.named(), *Ledger::create());
    writer.snapshot(Exec(), 1, "one");
    writer.snapshot(Exec(), 2, "two");
    writer.finish();
  }

  ScratchDirectory scratch;
  std::filesystem::path newest = scratch / "step-00000002.safetensors";
};

}  // namespace

BOOST_AUTO_TEST_SUITE(training_checkpoint)

// Values of the reference implementation, github.com/Cyan4973/xxHash.
BOOST_AUTO_TEST_CASE(the_checksum_is_xxh64) {
  const auto of = [](const std::string& text) { return kformer::Impl::xxh64(std::as_bytes(std::span(text))); };
  BOOST_TEST(of("") == 0xEF46DB3751D8E999u);
  BOOST_TEST(of("a") == 0xD24EC4F1A98C6E5Bu);
  BOOST_TEST(of("abc") == 0x44BC2CF5AD770999u);
  BOOST_TEST(of("The quick brown fox jumps over the lazy dog") == 0x0B242D361FDA71BCu);
}

// Of a file of 16 MiB; its contents are read twice, for the checksum and to restore them.
BOOST_AUTO_TEST_CASE(a_file_does_not_stay_in_memory, *boost::unit_test::precondition(counts_resident_files)) {
  const ScratchDirectory scratch;
  const TestTensor<Exec, float> array({1 << 22}, Rows::packed);
  const std::vector<NamedArray> arrays{{"a", array.ref()}};
  const auto ledger = Ledger::create();
  CheckpointWriter<Exec> writer({.folder = scratch.path()}, arrays, *ledger);
  writer.snapshot(Exec(), 1, "");
  writer.finish();
  const std::size_t before = resident_bytes_of_files(), little = std::size_t(4) << 20;
  const auto checkpoint = TrainingCheckpoint::open(scratch / "step-00000001.safetensors");
  BOOST_TEST(resident_bytes_of_files() <= before + little);
  checkpoint.restore(Exec(), std::span<const NamedArray>(arrays), *ledger);
  BOOST_TEST(resident_bytes_of_files() <= before + little);
}

BOOST_AUTO_TEST_CASE(what_was_written_is_restored) {
  for (const bool background : {true, false}) {
    const ScratchDirectory scratch;
    Arrays arrays(1);
    const auto written = arrays.bits();
    const std::string metadata = "{\"text\": \"naïve \\\"quotes\\\" π\"}\n";
    CheckpointWriter<Exec> writer({.folder = scratch / "a/b", .background = background}, arrays.named(),
                                  *Ledger::create());
    const double seconds = writer.snapshot(Exec(), 40, metadata);
    arrays.fill(2);  // while the file is written
    BOOST_TEST((arrays.bits() != written));
    writer.finish();
    BOOST_TEST(seconds > 0);
    BOOST_TEST(names_in(scratch / "a/b") == std::vector<std::string>{"step-00000040.safetensors"},
               boost::test_tools::per_element());
    const auto found = newest_good_checkpoint(scratch / "a/b");
    BOOST_REQUIRE(found.has_value());
    BOOST_TEST(found->step() == 40);
    BOOST_TEST(found->metadata() == metadata);
    BOOST_TEST(found->path().string() == (scratch / "a/b/step-00000040.safetensors").string());
    found->restore(Exec(), arrays.named(), *Ledger::create());
    BOOST_TEST((arrays.bits() == written));
  }
}

BOOST_AUTO_TEST_CASE(columns_are_kept_beside_the_arrays) {
  for (const bool background : {true, false}) {
    const ScratchDirectory scratch;
    Arrays arrays(1);
    const auto written = arrays.bits();
    const std::vector<std::byte> bytes{std::byte{1}, std::byte{255}, std::byte{3}, std::byte{4},
                                       std::byte{5}, std::byte{6},   std::byte{7}, std::byte{8}};
    const CheckpointColumns columns{{"b", {"F64", bytes}}, {"none", {"I64", {}}}, {"text", {"U8", bytes}}};
    CheckpointWriter<Exec> writer({.folder = scratch.path(), .background = background}, arrays.named(),
                                  *Ledger::create());
    writer.snapshot(Exec(), 1, "", columns);
    writer.finish();
    arrays.fill(2);
    const auto found = newest_good_checkpoint(scratch.path());
    found->restore(Exec(), arrays.named(), *Ledger::create());
    BOOST_TEST((arrays.bits() == written));
    const CheckpointColumns again = found->columns();
    BOOST_TEST_REQUIRE(again.size() == 3u);
    for (const auto& [name, column] : columns) {
      BOOST_TEST(again.at(name).dtype == column.dtype, name);
      BOOST_TEST((again.at(name).bytes == column.bytes), name);
    }
  }
}

BOOST_AUTO_TEST_CASE(the_newest_files_stay) {
  for (const std::int64_t keep : {0, 1, 3}) {
    const ScratchDirectory scratch;
    const Arrays arrays(1);
    put_contents(scratch / "notes.txt", "not a checkpoint");
    put_contents(scratch / "notes.3.tmp", "not half of a checkpoint");
    put_contents(scratch / "step-00000003.safetensors.2718281828.tmp", "of a run that was killed");
    put_contents(scratch / "step-00000001.safetensors", "no checkpoint either");
    CheckpointWriter<Exec>({.folder = scratch.path(), .background = false}, arrays.named(), *Ledger::create())
        .snapshot(Exec(), 99999999, "of another run");
    CheckpointWriter<Exec> writer({.folder = scratch.path(), .keep = keep}, arrays.named(), *Ledger::create());
    for (const std::int64_t step : {5, 9, 10, 11, 100}) writer.snapshot(Exec(), step, "");
    writer.finish();
    std::vector<std::string> expected{"notes.3.tmp", "notes.txt", "step-00000001.safetensors"};
    for (const char* step : {"005", "009", "010", "011", "100"})
      expected.push_back(std::string("step-00000") + step + ".safetensors");
    if (keep) expected.erase(expected.begin() + 3, expected.end() - keep);
    expected.push_back("step-99999999.safetensors");
    BOOST_TEST(names_in(scratch.path()) == expected, boost::test_tools::per_element());
    BOOST_TEST(newest_step(scratch.path()) == 99999999);
  }
}

BOOST_AUTO_TEST_CASE(there_may_be_none) {
  const ScratchDirectory scratch;
  BOOST_TEST(newest_step(scratch.path()) == -1);
  BOOST_TEST(newest_step(scratch / "absent") == -1);
}

BOOST_FIXTURE_TEST_CASE(a_truncated_file_is_skipped_at_any_length, TwoCheckpoints) {
  const std::string whole = contents_of(newest);
  for (std::size_t length = 0; length < whole.size(); ++length) {
    put_contents(newest, whole.substr(0, length));
    std::vector<std::string> reasons;
    BOOST_TEST(newest_step(scratch.path(), &reasons) == 1, length << " of " << whole.size() << " bytes");
    BOOST_TEST(reasons.size() == 1u);
    BOOST_TEST(reasons[0].starts_with("'" + newest.string() + "' is not a valid safetensors file: "),
               reasons[0]);
  }
  put_contents(newest, whole);
  BOOST_TEST(newest_step(scratch.path()) == 2);
}

BOOST_FIXTURE_TEST_CASE(a_flipped_bit_is_found_wherever_it_is, TwoCheckpoints) {
  const std::string whole = contents_of(newest);
  for (std::size_t at = 0; at < whole.size(); ++at) {
    std::string damaged = whole;
    damaged[at] = static_cast<char>(damaged[at] ^ (1 << at % 8));
    put_contents(newest, damaged);
    // White space between tokens of the header has no meaning.
    if (newest_step(scratch.path()) == 2) BOOST_TEST((whole[at] == ' '), "byte " << at);
  }
  std::string damaged = whole;
  damaged.back() = static_cast<char>(damaged.back() ^ 1);
  put_contents(newest, damaged);
  std::vector<std::string> reasons;
  BOOST_TEST(newest_step(scratch.path(), &reasons) == 1);
  BOOST_TEST(
      reasons.at(0).starts_with("'" + newest.string() + "' is damaged: the checksum of its contents is "));
}

BOOST_FIXTURE_TEST_CASE(foreign_files_are_skipped, TwoCheckpoints) {
  const float one = 1;
  SafetensorsWriter weights;
  weights.add("w", "F32", {1}, &one);
  weights.write(scratch / "step-4.safetensors");
  weights.metadata("format", "pt");
  weights.write(scratch / "step-3.safetensors");
  put_contents(scratch / "step-5.safetensors", "mine");
  const auto ours = training_checkpoints_in(scratch.path());
  BOOST_TEST_REQUIRE(ours.size() == 2u);
  BOOST_TEST(ours.back().string() == newest.string());
  BOOST_TEST(training_checkpoints_in(scratch / "absent").empty());
  std::filesystem::remove(scratch / "step-5.safetensors");
  std::vector<std::string> reasons;
  BOOST_TEST(newest_step(scratch.path(), &reasons) == 2);
  BOOST_TEST(
      reasons == (std::vector<std::string>{"'" + (scratch / "step-4.safetensors").string() +
                                               "' is not a training checkpoint: its metadata have no 'format'",
                                           "'" + (scratch / "step-3.safetensors").string() +
                                               "' is not a training checkpoint: its format is 'pt', expected "
                                               "'kformer training checkpoint 1'"}),
      boost::test_tools::per_element());
}

BOOST_AUTO_TEST_CASE(a_full_disk_leaves_the_last_checkpoint) {
  for (const bool background : {true, false}) {
    const ScratchDirectory scratch;
    Arrays arrays(1);
    const auto written = arrays.bits();
    const auto old = scratch / "step-00000001.safetensors";
    CheckpointWriter<Exec> writer({.folder = scratch.path(), .keep = 1, .background = background},
                                  arrays.named(), *Ledger::create());
    writer.snapshot(Exec(), 1, "");
    writer.finish();
    const std::string before = contents_of(old);
    arrays.fill(2);
    {
      const FileSizeLimit limit(before.size() / 2);
      const std::string error = file_error([&] {
        writer.snapshot(Exec(), 2, "");
        BOOST_TEST(background);
        writer.snapshot(Exec(), 3, "");  // says what the thread met
      });
      BOOST_TEST(error ==
                 "cannot write '" + (scratch / "step-00000002.safetensors").string() + "': File too large");
      BOOST_TEST(file_error([&] { writer.finish(); }) == "no error");
      if (background) {
        writer.snapshot(Exec(), 3, "");
        BOOST_TEST(file_error([&] { writer.finish(); }).starts_with("cannot write "));
      }
    }
    BOOST_TEST(names_in(scratch.path()) == std::vector<std::string>{old.filename()},
               boost::test_tools::per_element());
    BOOST_TEST((contents_of(old) == before));
    newest_good_checkpoint(scratch.path())->restore(Exec(), arrays.named(), *Ledger::create());
    BOOST_TEST((arrays.bits() == written));
    writer.snapshot(Exec(), 4, "");
    writer.finish();
    BOOST_TEST(newest_step(scratch.path()) == 4);
  }
}

BOOST_AUTO_TEST_CASE(a_folder_that_cannot_be_made_is_an_error) {
  const ScratchDirectory scratch;
  put_contents(scratch / "file", "");
  const Arrays arrays(1);
  BOOST_TEST(file_error([&] {
               CheckpointWriter<Exec>({.folder = scratch / "file/folder"}, arrays.named(), *Ledger::create());
             }) == "cannot make the folder '" + (scratch / "file/folder").string() +
                       "' for checkpoints: Not a directory");
}

BOOST_FIXTURE_TEST_CASE(arrays_of_another_run_are_refused_and_untouched, TwoCheckpoints) {
  const auto found = newest_good_checkpoint(scratch.path());
  Arrays other(2);
  const auto before = other.bits();
  const std::string path = "'" + newest.string() + "' ";
  const auto restore = [&](auto change) {
    std::vector<NamedArray> all = other.named();
    change(all);
    return file_error([&] { found->restore(Exec(), all, *Ledger::create()); });
  };
  BOOST_TEST(restore([](auto& all) { all.back().name = "z"; }).starts_with(path + "has no tensor 'z'"));
  BOOST_TEST(restore([](auto& all) { all.pop_back(); }) ==
             path + "belongs to another run: this one has no array 'none'");
  BOOST_TEST(restore([](auto& all) { all.back().array.dtype = DType::i32; }) ==
             path + "belongs to another run: 'none' is F32 [0, 4] there, and I32 [0, 4] in this run");
  BOOST_TEST(restore([](auto& all) { all.back().array.extent = {4, 0}; }) ==
             path + "belongs to another run: 'none' is F32 [0, 4] there, and F32 [4, 0] in this run");
  BOOST_TEST((other.bits() == before));
}

BOOST_AUTO_TEST_CASE(the_copy_is_booked) {
  const ScratchDirectory scratch;
  const Arrays arrays(1);
  const auto booked = [&](Ledger::Mode mode, bool background) {
    const auto ledger = Ledger::create(mode);
    const CheckpointWriter<Exec> writer({.folder = scratch / "made", .background = background}, arrays.named(),
                                        *ledger);
    BOOST_TEST(ledger->current_total() == ledger->current(MemoryClass::io));
    return ledger->current_total();
  };
  BOOST_TEST(booked(Ledger::Mode::count, true) == 6u * 64);  // 60, 14, 60, 8, 13 and 16 bytes
  BOOST_TEST(!std::filesystem::exists(scratch / "made"));
  BOOST_TEST(booked(Ledger::Mode::allocate, true) == 6u * 64);
  BOOST_TEST(std::filesystem::exists(scratch / "made"));
  constexpr bool readable = Kokkos::SpaceAccessibility<Kokkos::HostSpace, Exec::memory_space>::accessible;
  BOOST_TEST(booked(Ledger::Mode::allocate, false) == (readable ? 0u : 6u * 64));
}

BOOST_AUTO_TEST_CASE(copies_to_a_file_and_back_are_counted) {
  const ScratchDirectory scratch;
  const Arrays arrays(1);
  const auto writing = Ledger::create(), reading = Ledger::create();
  CheckpointWriter<Exec> writer({.folder = scratch.path()}, arrays.named(), *writing);
  writer.snapshot(Exec(), 1, "");
  writer.finish();
  newest_good_checkpoint(scratch.path())->restore(Exec(), arrays.named(), *reading);
  // One of them is empty.
  for (const auto& [ledger, transfers] : {std::pair(writing, 7u), std::pair(reading, 6u)}) {
    const auto counts = ledger->transfers();
    BOOST_TEST_REQUIRE(counts.size() == 1u);
    BOOST_TEST(counts[0].transfers == transfers);
    BOOST_TEST(counts[0].bytes == 60u + 14 + 60 + 8 + 13 + 16);
  }
}

BOOST_AUTO_TEST_CASE_TEMPLATE(a_run_continues_from_a_file_bit_for_bit, T, Scalars) {
  const ScratchDirectory scratch;
  for (const TrainerOptions& options : resumable_options<T>()) {
    TrainingRun<T> whole(options);
    TrainerState state;
    {
      CheckpointWriter<Exec> writer({.folder = scratch.path()}, whole.trainer.arrays(), *whole.ledger);
      for (int t = 0; t < 8; ++t) {
        if (t == 3) {
          state = whole.trainer.state();
          writer.snapshot(Exec(), t, "");
        }
        whole.random_step(t);
      }
      writer.finish();
    }
    TrainingRun<T> resumed(options);
    newest_good_checkpoint(scratch.path())->restore(Exec(), resumed.trainer.arrays(), *resumed.ledger);
    resumed.trainer.restore(state);
    for (int t = 3; t < 8; ++t) resumed.random_step(t);
    BOOST_TEST((resumed.bits() == whole.bits()));
  }
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace kformer::Testing
