// Images of MNIST, CIFAR-10 and a seed: values, labels, and what bad files say.
#include "trireme/data/images.h"

#include <gtest/gtest.h>

#include <cmath>
#include <thread>

#include "trireme/data/cifar.h"
#include "trireme/data/data_test_util.h"
#include "trireme/data/generated_images.h"
#include "trireme/data/idx.h"
#include "trireme/observe/memory.h"

namespace trireme {
namespace {

std::string big_endian(uint32_t value) {
  std::string bytes;
  for (int shift = 24; shift >= 0; shift -= 8) bytes += static_cast<char>(value >> shift);
  return bytes;
}

std::string images_file(uint32_t count, uint32_t height, uint32_t width) {
  std::string bytes = big_endian(0x803) + big_endian(count) + big_endian(height) + big_endian(width);
  for (uint32_t i = 0; i < count * height * width; ++i) bytes += static_cast<char>(i * 7);
  return bytes;
}

std::string labels_file(uint32_t count) {
  std::string bytes = big_endian(0x801) + big_endian(count);
  for (uint32_t i = 0; i < count; ++i) bytes += static_cast<char>(i % 10);
  return bytes;
}

std::string cifar_file(size_t count) {
  std::string bytes;
  for (size_t i = 0; i < count; ++i) {
    bytes += static_cast<char>(i % 10);
    for (size_t k = 0; k < 3072; ++k) bytes += static_cast<char>(i + k);
  }
  return bytes;
}

class ImagesTest : public DataTest {
 protected:
  void write_mnist(char between = '-') const {
    const std::string b(1, between);
    write("train-images" + b + "idx3-ubyte", images_file(12, 3, 4));
    write("train-labels" + b + "idx1-ubyte", labels_file(12));
  }
  std::string idx(const std::string& name, const std::string& bytes) const {
    write_mnist();
    write(name, bytes);
    return message_of([&] { open_idx(folder_, FileCache::kMap, 10); });
  }
};

TEST_F(ImagesTest, MnistIsReadAndNormalised) {
  for (const char between : {'-', '.'}) {
    std::filesystem::remove_all(folder_);
    write_mnist(between);
    EXPECT_TRUE(has_idx(folder_));
    for (const FileCache cache : {FileCache::kMap, FileCache::kMemory}) {
      const ImageFiles files = open_idx(folder_, cache, 10);
      EXPECT_TRUE(files.held_out.empty());
      const ImageDataset data(files.train, SamplePart::range(2, 10), files.shape, files.normalisation);
      EXPECT_EQ(data.shape(), SampleShape::image(1, 3, 4));
      Batch batch(data.shape(), 10);
      for (int64_t i = 0; i < 10; ++i) data.read(i, batch, i);
      for (size_t i = 0; i < 120; ++i) {
        const float pixel = static_cast<float>((i + 24) * 7 % 256) / 255.0f;
        ASSERT_FLOAT_EQ(batch.input<float>()[i], (pixel - 0.1307f) / 0.3081f);
      }
      EXPECT_EQ(batch.target<int64_t>()[3], 5);
    }
  }
  write("t10k-images.idx3-ubyte", images_file(5, 3, 4));
  expect_says(message_of([&] { open_idx(folder_, FileCache::kMap, 10); }), {"t10k-labels-idx1-ubyte", "four files"});
  write("t10k-labels.idx1-ubyte", labels_file(5));
  EXPECT_EQ(count_images(open_idx(folder_, FileCache::kMap, 10).held_out), 5);
}

TEST_F(ImagesTest, BadMnistIsNamed) {
  const std::string images = "train-images-idx3-ubyte", labels = "train-labels-idx1-ubyte";
  expect_says(idx(images, ""), {images, "0 bytes", "16"});
  expect_says(idx(images, labels_file(12)), {images, "byte 0", "0x00000801 instead of 0x00000803", "swapped"});
  expect_says(idx(images, "\x1f\x8b\x08 and so on, packed"), {"gunzip"});
  expect_says(idx(images, images_file(12, 3, 4) + "x"), {"byte 4", "12 × 3 × 4", "145 follow"});
  expect_says(idx(images, images_file(12, 3, 4).substr(0, 50)), {"34 follow", "cut short"});
  expect_says(idx(images, big_endian(0x803) + std::string(12, '\xff')), {"4294967295 × 4294967295"});
  expect_says(idx(images, big_endian(0x803) + std::string(12, '\0')), {"holds nothing"});
  expect_says(idx(images, images_file(11, 3, 4)), {"11 images", "12 labels"});
  std::string bad = labels_file(12);
  bad[8 + 4] = 10;
  expect_says(idx(labels, bad), {labels, "byte 12", "image 4 is 10", "0 to 9"});
  std::filesystem::remove(folder_ / images);
  write(images + ".gz", "");
  EXPECT_TRUE(has_idx(folder_));
  expect_says(message_of([&] { open_idx(folder_, FileCache::kMap, 10); }), {"unpack it: gunzip"});
}

TEST_F(ImagesTest, CifarIsReadAcrossFiles) {
  write("data_batch_1.bin", cifar_file(3));
  write("data_batch_2.bin", cifar_file(4));
  write("test_batch.bin", cifar_file(2));
  EXPECT_TRUE(has_cifar(folder_));
  const ImageFiles files = open_cifar(folder_, FileCache::kMap);
  EXPECT_EQ(count_images(files.train), 7);
  EXPECT_EQ(count_images(files.held_out), 2);
  const ImageDataset data(files.train, SamplePart::range(0, 7), files.shape, files.normalisation);
  Batch batch(data.shape(), 1);
  data.read(5, batch, 0);
  EXPECT_EQ(batch.target<int64_t>()[0], 2);
  EXPECT_FLOAT_EQ(batch.input<float>()[0], (2 / 255.0f - 0.4914f) / 0.2470f);
  EXPECT_FLOAT_EQ(batch.input<float>()[2048], (2 / 255.0f - 0.4465f) / 0.2616f);
  write("data_batch_2.bin", cifar_file(4).substr(1));
  expect_says(message_of([&] { open_cifar(folder_, FileCache::kMap); }), {"data_batch_2.bin", "12291 bytes", "3073"});
  std::string bad = cifar_file(4);
  bad[3073 * 2] = 77;
  write("data_batch_2.bin", bad);
  expect_says(message_of([&] { open_cifar(folder_, FileCache::kMap); }), {"byte 6146", "image 2 is 77"});
}

TEST(ImageFuzzTest, RandomAndChangedFilesThrowOnlyErrors) {
  std::mt19937 random(4);
  const std::string images = images_file(12, 3, 4), labels = labels_file(12), cifar = cifar_file(2);
  const auto memory = [](const std::string& bytes) { return FileBytes::in_memory("f", bytes); };
  int accepted = 0;
  const auto check = [&](auto call) { accepted += message_of(call) == "accepted"; };
  for (int i = 0; i < 3000; ++i) {
    std::string noise = random_bytes(random, random() % 64);
    if (i % 2 == 0) noise = big_endian(0x803) + noise;
    check([&] { read_idx(memory(i % 3 == 0 ? noise : mutated(images, random)), memory(labels), 10); });
    check([&] { read_idx(memory(images), memory(mutated(labels, random)), 10); });
    check([&] { read_cifar(memory(i % 3 == 0 ? noise : mutated(cifar, random))); });
  }
  EXPECT_GT(accepted, 100) << "changed pixels are no error";
  EXPECT_LT(accepted, 8000);
}

TEST(GeneratedImagesTest, AreEvenlySpreadNormalisedAndTheSameEachTime) {
  GeneratedImageOptions options;
  options.num_train = 500;
  options.num_held_out = 100;
  const ImageFiles files = generate_images(options);
  const ImageDataset data(files.train, SamplePart::range(0, 500), files.shape, files.normalisation);
  const ImageFiles again_files = generate_images(options);
  const ImageDataset again(again_files.train, SamplePart::range(0, 500), files.shape, files.normalisation);
  Batch a(data.shape(), 500), b(data.shape(), 500);
  double sum = 0, squares = 0;
  std::vector<int> count(10);
  for (int64_t i = 0; i < 500; ++i) {
    data.read(i, a, i);
    again.read(i, b, i);
    ++count[static_cast<size_t>(a.target<int64_t>()[static_cast<size_t>(i)])];
  }
  EXPECT_EQ(a, b);
  for (const float value : a.input<float>()) {
    sum += value;
    squares += value * value;
  }
  const double n = static_cast<double>(a.input<float>().size());
  EXPECT_NEAR(sum / n, 0, 0.1);
  EXPECT_NEAR(std::sqrt(squares / n), 1, 0.1);
  for (const int of_class : count) EXPECT_EQ(of_class, 50);
  options.seed = 2;
  const ImageFiles other_files = generate_images(options);
  const ImageDataset other(other_files.train, SamplePart::range(0, 500), files.shape, files.normalisation);
  other.read(0, b, 0);
  EXPECT_NE(a.input<float>(), b.input<float>());
  options.height = 4;
  expect_says(message_of([&] { generate_images(options); }), {"height = 4"});
}

TEST(GeneratedImagesTest, AreDrawnWhenTheyAreReadByAnyThread) {
  GeneratedImageOptions options;
  options.num_train = 1 << 20;  // 823 MB, of which a few pages are written
  options.num_held_out = 4;
  const uint64_t before = process_memory().now_bytes;
  const ImageFiles files = generate_images(options);
  const ImageDataset many(files.train, SamplePart::range(0, options.num_train), files.shape, files.normalisation);
  options.num_train = 64;
  const ImageFiles few_files = generate_images(options);
  const ImageDataset few(few_files.train, SamplePart::range(0, 64), few_files.shape, few_files.normalisation);
  Batch expected(few.shape(), 64);
  for (int64_t i = 0; i < 64; ++i) few.read(i, expected, i);
  std::vector<Batch> found(4, Batch(many.shape(), 64));
  {
    std::vector<std::jthread> threads;
    for (Batch& batch : found) {
      threads.emplace_back([&] {
        for (int64_t i = 64; i-- > 0;) many.read(i, batch, i);
      });
    }
  }
  for (const Batch& batch : found) EXPECT_EQ(batch, expected);
  EXPECT_LT(process_memory().now_bytes, before + (uint64_t{100} << 20));
}

TEST(GeneratedImagesTest, TheNearestClassMeanKnowsMoreThanChanceAndLessThanAll) {
  const ImageFiles files = generate_images({});
  const int64_t n = 3000, m = 500;
  const ImageDataset train(files.train, SamplePart::range(0, n), files.shape, files.normalisation);
  const ImageDataset test(files.held_out, SamplePart::range(0, m), files.shape, files.normalisation);
  std::vector<std::vector<float>> mean(10, std::vector<float>(784));
  Batch one(train.shape(), 1);
  for (int64_t i = 0; i < n; ++i) {
    train.read(i, one, 0);
    for (size_t k = 0; k < 784; ++k)
      mean[static_cast<size_t>(one.target<int64_t>()[0])][k] += one.input<float>()[k] * 10 / n;
  }
  int right = 0;
  for (int64_t i = 0; i < m; ++i) {
    test.read(i, one, 0);
    std::vector<float> distance(10);
    for (size_t c = 0; c < 10; ++c) {
      for (size_t k = 0; k < 784; ++k)
        distance[c] += (mean[c][k] - one.input<float>()[k]) * (mean[c][k] - one.input<float>()[k]);
    }
    right += std::min_element(distance.begin(), distance.end()) - distance.begin() == one.target<int64_t>()[0];
  }
  EXPECT_GT(right, 100) << "of 500, where chance has 50";
  EXPECT_LT(right, 475) << "too easy to show learning";
  RecordProperty("right_of_500", right);
}

}  // namespace
}  // namespace trireme
