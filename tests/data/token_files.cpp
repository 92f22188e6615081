// SPDX-License-Identifier: MIT
// Tokens from .npy and HDF5 files, of every type, mapped or unpacked.
#include <boost/test/unit_test.hpp>
#include <cstring>

#include "data_case.hpp"
#include "error_text.hpp"
#include "kformer/io/hdf5.hpp"

namespace kformer::Testing {
namespace {

/// A .npy file as numpy writes it.
std::string npy(const std::string& descr, const std::string& shape, const std::string& data, int version = 1) {
  std::string header = "{'descr': '" + descr + "', 'fortran_order': False, 'shape': " + shape + ", }";
  const std::size_t length_bytes = version == 1 ? 2 : 4;
  while ((8 + length_bytes + header.size() + 1) % 64 != 0) header += ' ';
  header += '\n';
  std::string file = "\x93NUMPY";
  file += {static_cast<char>(version), '\0'};
  for (std::size_t i = 0; i < length_bytes; ++i) file += static_cast<char>(header.size() >> (8 * i) & 0xFF);
  return file + header + data;
}

template <class T>
std::string raw(const std::vector<T>& values) {
  std::string data(values.size() * sizeof(T), '\0');
  std::memcpy(data.data(), values.data(), data.size());
  return data;
}

/// Writes integers as a dataset; in compressed chunks if `chunk` is not 0.
void put_dataset(hid_t file, const char* name, const std::vector<std::int64_t>& values, hid_t type,
                 hsize_t chunk = 0) {
  const hsize_t extent = values.size();
  const hdf5::Dataspace space(H5Screate_simple(1, &extent, nullptr));
  const hdf5::PropertyList made(H5Pcreate(H5P_DATASET_CREATE));
  if (chunk > 0) {
    H5Pset_chunk(made.get(), 1, &chunk);
    H5Pset_deflate(made.get(), 4);
  }
  const hdf5::Dataset dataset(H5Dcreate2(file, name, type, space.get(), H5P_DEFAULT, made.get(), H5P_DEFAULT));
  H5Dwrite(dataset.get(), H5T_NATIVE_INT64, H5S_ALL, H5S_ALL, H5P_DEFAULT, values.data());
}

hdf5::File new_hdf5(const std::filesystem::path& path) {
  return hdf5::File(H5Fcreate(path.c_str(), H5F_ACC_TRUNC, H5P_DEFAULT, H5P_DEFAULT));
}

TokenDataset open_tokens(const std::filesystem::path& path, Packing packing, std::int64_t seq_len,
                         std::int64_t vocab_size = 0) {
  auto options = options_of(DataFormat::tokens, {path}, packing, seq_len);
  options.vocab_size = vocab_size;
  return TokenDataset::open(options);
}

std::string tokens_error(const std::filesystem::path& path, std::int64_t vocab_size = 0) {
  std::string text = file_error([&] { open_tokens(path, Packing::pad, 4, vocab_size); });
  const std::string folder = path.parent_path().string() + "/";
  for (auto at = text.find(folder); at != std::string::npos; at = text.find(folder))
    text.erase(at, folder.size());
  return text;
}

}  // namespace

BOOST_AUTO_TEST_SUITE(token_files)

BOOST_AUTO_TEST_CASE(npy_of_every_type) {
  const ScratchDirectory folder;
  const auto path = folder / "tokens.npy";
  const auto check = [&](const std::string& contents) {
    put_contents(path, contents);
    const auto data = open_tokens(path, Packing::stream, 2);
    BOOST_TEST(data.size() == 2);
    BOOST_TEST(sequence_of(data, 0).ids == (Ids{5, 40000}));
    BOOST_TEST(sequence_of(data, 1).ids == (Ids{0, 7}));
    BOOST_TEST(sequence_of(data, 1).targets == (Ids{7, 9}));
    BOOST_TEST(data.report().documents == 1);
  };
  check(npy("<u2", "(5,)", raw<std::uint16_t>({5, 40000, 0, 7, 9})));
  check(npy("<u4", "(5,)", raw<std::uint32_t>({5, 40000, 0, 7, 9})));
  check(npy("<i4", "(5,)", raw<std::int32_t>({5, 40000, 0, 7, 9})));
  check(npy("<i8", "(5,)", raw<std::int64_t>({5, 40000, 0, 7, 9})));
  check(npy("<i8", "(5,)", raw<std::int64_t>({5, 40000, 0, 7, 9}), 2));
  // Old versions of numpy align to 16 bytes, other programs to nothing.
  std::string unaligned = npy("<i4", "(5,)", "", 3);
  unaligned.insert(unaligned.size() - 1, " ");
  unaligned[8] = static_cast<char>(unaligned[8] + 1);
  check(unaligned + raw<std::int32_t>({5, 40000, 0, 7, 9}));
}

BOOST_AUTO_TEST_CASE(npy_that_is_none) {
  const ScratchDirectory folder;
  const auto path = folder / "tokens.npy";
  const auto error = [&](const std::string& contents, std::int64_t vocab_size = 0) {
    put_contents(path, contents);
    return tokens_error(path, vocab_size);
  };
  const std::string none = "'tokens.npy' is not a .npy file of tokens: ";
  const std::string data = raw<std::int32_t>({1, 2, 3});
  BOOST_TEST(error("") == none + "it does not start with the .npy signature");
  BOOST_TEST(error("PK\3\4") == none + "it does not start with the .npy signature");
  BOOST_TEST(error("\x93NUMPY\x09\x01") == none + "its version is 9; expected 1, 2 or 3");
  BOOST_TEST(error(npy("<i4", "(3,)", data).substr(0, 60)) == none + "its header is truncated");
  BOOST_TEST(error(npy("<i4", "(3,)", data.substr(1))) ==
             none + "the header declares 3 tokens, but the file has 2; it is truncated");
  BOOST_TEST(error(npy("<i4", "(9999999999999999,)", data)) ==
             none + "the header declares 9999999999999999 tokens, but the file has 3; it is truncated");
  BOOST_TEST(
      error(npy("<f4", "(3,)", data)) ==
      none + "its elements are '<f4'; expected '<u2', '<u4', '<i4' or '<i8' (uint16, uint32, int32, int64)");
  BOOST_TEST(error(npy(">i4", "(3,)", data)).find("its elements are '>i4'") != std::string::npos);
  BOOST_TEST(error(npy("<i4", "(1, 3)", data)) == none + "its shape is (1, 3); expected one extent");
  BOOST_TEST(error(npy("<i4", "()", data)) == none + "its shape is (); expected one extent");
  BOOST_TEST(error(npy("<i4", "(3,)", data), 3) ==
             "'tokens.npy': token 2 is 3; expected 0 to 2 (the vocabulary); check that the data was made with "
             "this tokenizer");
  BOOST_TEST(error(npy("<i4", "(3,)", data), 4) == "no error");
  BOOST_TEST(error(npy("<i4", "(2,)", raw<std::int32_t>({1, -1}))) ==
             "'tokens.npy': token 1 is -1; expected 0 to 2147483647");
  BOOST_TEST(error(npy("<i8", "(2,)", raw<std::int64_t>({1, 1ll << 31}))) ==
             "'tokens.npy': token 1 is 2147483648; expected 0 to 2147483647");
  BOOST_TEST(error(npy("<i4", "(0,)", "")) == "'tokens.npy': the data set is empty");
  put_contents(folder / "tokens.bin", data);
  BOOST_TEST(tokens_error(folder / "tokens.bin") ==
             "'tokens.bin' is not a file of tokens by its name; expected .npy, .h5 or .hdf5");
}

BOOST_AUTO_TEST_CASE(hdf5_mapped_and_unpacked) {
  const ScratchDirectory folder, cache;
  const auto path = folder / "tokens.h5";
  const std::vector<std::int64_t> tokens{5, 40000, 0, 7, 9, 11}, offsets{0, 2, 2, 6};
  int cached_files = 0;
  for (const bool packed : {false, true}) {
    for (const hid_t type : {H5T_STD_U16LE, H5T_STD_U32LE, H5T_STD_I32LE, H5T_STD_I64LE, H5T_STD_I32BE,
                             H5T_STD_U16BE, H5T_STD_U32BE, H5T_STD_I64BE}) {
      {
        const auto file = new_hdf5(path);
        put_dataset(file.get(), "tokens", tokens, type, packed ? 4 : 0);
        put_dataset(file.get(), "offsets", offsets, H5T_STD_I32LE);
      }
      auto options = options_of(DataFormat::tokens, {path}, Packing::pad, 4);
      options.cache = cache.path();
      for (int again = 0; again < 2; ++again) {
        const auto data = TokenDataset::open(options);
        BOOST_TEST(data.size() == 2);
        BOOST_TEST(sequence_of(data, 0).ids == (Ids{5, 40000, 0, 0}));
        BOOST_TEST(sequence_of(data, 0).targets == (Ids{40000, -100, -100, -100}));
        BOOST_TEST(sequence_of(data, 1).ids == (Ids{0, 7, 9, 11}));
        BOOST_TEST(data.report().documents == 3);
        cached_files += static_cast<int>(data.report().cached_files);
      }
    }
  }
  // Eight packed ones and the four that are big-endian, each when it was opened again.
  BOOST_TEST(cached_files == 12);
  {
    const auto file = new_hdf5(path);
    put_dataset(file.get(), "tokens", tokens, H5T_STD_I32LE);
  }
  BOOST_TEST(open_tokens(path, Packing::stream, 5).report().documents == 1);
}

BOOST_AUTO_TEST_CASE(hdf5_that_is_none) {
  const ScratchDirectory folder;
  const auto path = folder / "tokens.h5";
  const auto error = [&](auto write) {
    {
      const auto file = new_hdf5(path);
      write(file.get());
    }
    return tokens_error(path);
  };
  const std::string none = "'tokens.h5' is not an HDF5 file of tokens: ";
  const auto with_offsets = [&](std::vector<std::int64_t> offsets) {
    return error([&](hid_t file) {
      put_dataset(file, "tokens", {1, 2, 3}, H5T_STD_I32LE);
      put_dataset(file, "offsets", offsets, H5T_STD_I64LE);
    });
  };
  BOOST_TEST(error([](hid_t) {}).starts_with("HDF5 cannot open dataset 'tokens' in '/' of 'tokens.h5'"));
  BOOST_TEST(error([](hid_t file) { put_dataset(file, "tokens", {1, 2}, H5T_IEEE_F32LE); }) ==
             none + "tokens are not integers");
  BOOST_TEST(error([](hid_t file) {
               const hdf5::Dataspace scalar(H5Screate(H5S_SCALAR));
               const hdf5::Dataset made(H5Dcreate2(file, "tokens", H5T_STD_I32LE, scalar.get(), H5P_DEFAULT,
                                                   H5P_DEFAULT, H5P_DEFAULT));
             }) == none + "tokens does not have one extent");
  for (const auto& offsets : {std::vector<std::int64_t>{0, 2}, {1, 3}, {0, 2, 1, 3}, {3}})
    BOOST_TEST(with_offsets(offsets) ==
               none +
                   "offsets do not ascend from 0 to the number of tokens, 3; expected the "
                   "first token of each document, and the end");
  BOOST_TEST(with_offsets({0, 3}) == "no error");
  BOOST_TEST(error([](hid_t file) { put_dataset(file, "tokens", {1, -2}, H5T_STD_I32LE, 2); }) ==
             none + "tokens contains -2, which is not a token id");
  BOOST_TEST(error([](hid_t file) { put_dataset(file, "tokens", {1, 1ll << 32}, H5T_STD_I64LE, 2); }) ==
             none + "tokens contains 4294967296, which is not a token id");
  const auto declared = [](hid_t file, hsize_t extent, const hdf5::PropertyList& made) {
    const hdf5::Dataspace space(H5Screate_simple(1, &extent, nullptr));
    const hdf5::Dataset dataset(
        H5Dcreate2(file, "tokens", H5T_STD_I32LE, space.get(), H5P_DEFAULT, made.get(), H5P_DEFAULT));
  };
  BOOST_TEST(error([&](hid_t file) {
               declared(file, hsize_t{1} << 40, hdf5::PropertyList(H5Pcreate(H5P_DATASET_CREATE)));
             }) == none + "tokens has 1099511627776 values in 0 bytes");
  put_contents(folder / "other", std::string(16, '\1'));
  BOOST_TEST(error([&](hid_t file) {
               const hdf5::PropertyList made(H5Pcreate(H5P_DATASET_CREATE));
               H5Pset_external(made.get(), (folder / "other").c_str(), 0, 16);
               declared(file, 4, made);
             }) == none + "tokens is stored in another file");
  put_contents(path, "no HDF5");
  BOOST_TEST(tokens_error(path).starts_with("HDF5 cannot read 'tokens.h5'"));
}

BOOST_AUTO_TEST_SUITE_END()
}  // namespace kformer::Testing
