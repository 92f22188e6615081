// SPDX-License-Identifier: MIT
#include <boost/test/unit_test.hpp>

#include "kformer/io/checkpoint.hpp"
#include "support/given_data.hpp"

BOOST_AUTO_TEST_SUITE(checkpoint_data, *boost::unit_test::precondition(kformer::Testing::Given{"stories260K"}))

BOOST_AUTO_TEST_CASE(a_published_model_fits_its_configuration) {
  const auto stories = kformer::Checkpoint::open(kformer::Testing::given_data() / "stories260K");
  const auto& model = stories.model();
  stories.check_against(model);
  BOOST_TEST(model.num_hidden_layers == 5);
  BOOST_TEST(model.vocab_size == 512);
  BOOST_TEST(model.num_key_value_heads == 4);
  BOOST_TEST(model.head_dim == 8);
  BOOST_TEST(model.tie_word_embeddings);
  BOOST_TEST(model.bos_token_ids == (std::vector<std::int64_t>{1}));
  BOOST_TEST(stories.names().size() == kformer::model_tensor_shapes(model).size());
  BOOST_TEST(stories.at("model.embed_tokens.weight").shape == (std::vector<std::size_t>{512, 64}));
}

BOOST_AUTO_TEST_SUITE_END()
