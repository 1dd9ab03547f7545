// As data_parallel_equality_test.cpp, for ResNet-18 on images of 28 x 28 pixels and on more workers.
// ctest: slow timeout=900
#include "numerics/training.h"
#include "trireme/train/trainer.h"

namespace trireme {
namespace {

TEST(ResNet18, EveryNumberOfWorkersGivesTheSameBits) {
  const Config config = config_of("resnet", {"--train.clip=0.5"});
  const Outcome one = train(config, 1);
  for (const int workers : {2, 3, 4, 8}) expect_equal(one, train(config, workers), fmt::format("{} workers", workers));
}

TEST(ResNet18, ImagesOfMnistsSize) {
  const Words words = {"--model.image=28", "--train.leaves=4", "--train.global_batch=16", "--train.micro_batch=2"};
  const Outcome one = train(config_of("resnet", words), 1, 2, true);
  for (const int workers : {2, 4}) {
    const Outcome other = train(config_of("resnet", words), workers, 2, true);
    expect_equal(one, other, fmt::format("{} workers", workers));
    EXPECT_EQ(bits_of({one.evaluation.loss}), bits_of({other.evaluation.loss}));
  }
}

TEST(ResNet18, BucketsAndOverlapDoNotChangeBits) {
  const Outcome reference = train(config_of("resnet"), 2, 2);
  for (const char* words : {"--parallel.bucket_mb=0.001", "--parallel.bucket_mb=64", "--parallel.overlap=false"}) {
    expect_equal(reference, train(config_of("resnet", {words}), 2, 2), words);
  }
}

}  // namespace
}  // namespace trireme
