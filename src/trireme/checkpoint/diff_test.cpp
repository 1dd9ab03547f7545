// Differences of tensors of each type, and of checkpoints.
#include "trireme/checkpoint/diff.h"

#include <cmath>
#include <limits>

#include "trireme/checkpoint/checkpoint_test_util.h"

namespace trireme {
namespace {

using Diff = CheckpointTest;

template <typename T>
OwnedTensor tensor_of(DataType type, const std::vector<T>& values) {
  OwnedTensor tensor{{"t", type, {static_cast<int64_t>(values.size())}}, {}};
  tensor.bytes.resize(values.size() * sizeof(T));
  std::memcpy(tensor.bytes.data(), values.data(), tensor.bytes.size());
  return tensor;
}

template <typename T>
TensorDifference diff(DataType type, const std::vector<T>& a, const std::vector<T>& b) {
  const OwnedTensor x = tensor_of(type, a), y = tensor_of(type, b);
  return diff_tensors(x.view(), y.view());
}

TEST(DiffTensors, Floats) {
  const float inf = std::numeric_limits<float>::infinity(), nan = std::numeric_limits<float>::quiet_NaN();
  const float next = std::nextafter(1.0F, 2.0F);
  auto result = diff<float>(DataType::kFloat, {1, 2, 3}, {1, 2, 3});
  EXPECT_EQ(result.num_different, 0U);
  result = diff<float>(DataType::kFloat, {1, 2, -1}, {next, 2, -next});
  EXPECT_EQ(result.num_different, 2U);
  EXPECT_EQ(result.largest_ulp, 1U);
  EXPECT_EQ(result.largest, double{next} - 1);
  result = diff<float>(DataType::kFloat, {0.0F}, {-0.0F});
  EXPECT_EQ(result.num_different, 1U);
  EXPECT_EQ(result.largest_ulp, 0U);
  result = diff<float>(DataType::kFloat, {nan, 1, inf, nan}, {1, 1, 1, nan});
  EXPECT_EQ(result.num_different, 2U);
  EXPECT_EQ(result.num_one_nan, 1U);
  EXPECT_EQ(result.largest, 0);
  const float tiny = std::numeric_limits<float>::denorm_min();
  EXPECT_EQ(diff<float>(DataType::kFloat, {tiny}, {-tiny}).largest_ulp, 2U);
}

TEST(DiffTensors, OtherTypes) {
  EXPECT_EQ(diff<double>(DataType::kDouble, {1.0}, {1.5}).largest, 0.5);
  EXPECT_EQ(diff<uint16_t>(DataType::kHalf, {0x3C00}, {0x3C01}).largest, std::ldexp(1.0, -10));
  EXPECT_EQ(diff<uint16_t>(DataType::kHalf, {0x0001}, {0x0000}).largest, std::ldexp(1.0, -24));
  EXPECT_EQ(diff<uint16_t>(DataType::kBFloat16, {0x3F80}, {0xBF80}).largest, 2.0);
  EXPECT_EQ(diff<int32_t>(DataType::kInt32, {INT32_MIN}, {INT32_MAX}).largest, 4294967295.0);
  EXPECT_EQ(diff<int64_t>(DataType::kInt64, {INT64_MIN}, {INT64_MAX}).largest, std::ldexp(1.0, 64));
  EXPECT_EQ(diff<uint8_t>(DataType::kUInt8, {1, 200}, {1, 100}).largest, 100.0);
}

TEST_F(Diff, Checkpoints) {
  const std::vector<OwnedTensor> a = {make_tensor("same", {4}), make_tensor("reshaped", {4}),
                                      make_tensor("only a", {1}), make_tensor("changed", {100}, 1)};
  std::vector<OwnedTensor> b = {make_tensor("same", {4}), make_tensor("reshaped", {2, 2}), make_tensor("only b", {1}),
                                make_tensor("changed", {100}, 1)};
  b[3].bytes[43] ^= std::byte{1};
  const auto first = CheckpointReader::open(save_checkpoint(root(), 1, as_shard(a), "{}", 0).path);
  const auto second = CheckpointReader::open(save_checkpoint(root(), 2, as_shard(b), "{}", 0).path);
  EXPECT_TRUE(diff_checkpoints(first, first).equal());
  const CheckpointDifference difference = diff_checkpoints(first, second);
  EXPECT_EQ(difference.only_a, std::vector<std::string>{"only a"});
  EXPECT_EQ(difference.only_b, std::vector<std::string>{"only b"});
  EXPECT_EQ(difference.num_equal, 1U);
  ASSERT_EQ(difference.different.size(), 2U);
  EXPECT_EQ(difference.different[0].num_different, 1U);
  EXPECT_FALSE(difference.different[1].comparable());
}

}  // namespace
}  // namespace trireme
