// Saves in the background: one at a time, errors at the next call, and an end that waits.
#include "trireme/checkpoint/async_saver.h"

#include <atomic>
#include <future>

#include "trireme/base/error.h"
#include "trireme/checkpoint/checkpoint_test_util.h"

namespace trireme {
namespace {

using Async = CheckpointTest;

/// Worker 0's request: writes, then commits.
SaveRequest request_of(const std::filesystem::path& root, uint64_t step) {
  auto pending = std::make_shared<PendingCheckpoint>(PendingCheckpoint::begin(root, step));
  SaveRequest request;
  request.place = pending->place();
  for (OwnedTensor& tensor : small_model(step))
    request.tensors.push_back({std::move(tensor), "weights", 0, std::nullopt});
  request.completion = [pending](const std::exception_ptr& failure) {
    if (!failure) pending->commit(1, kMeta, 2);
  };
  return request;
}

TEST_F(Async, SavesInTurn) {
  AsyncSaver saver;
  for (uint64_t step = 1; step <= 5; ++step) {
    saver.wait();
    saver.start(request_of(root(), step));
  }
  saver.wait();
  EXPECT_FALSE(saver.busy());
  expect_step(find_newest(root()).newest->path, 5);
  EXPECT_EQ(list_checkpoints(root()).size(), 2U);
}

TEST_F(Async, TheSecondWaits) {
  AsyncSaver saver;
  std::promise<void> gate;
  std::shared_future<void> opened = gate.get_future().share();
  SaveRequest slow;
  slow.place = {root(), 1, "none"};
  std::atomic<int> order = 0;
  slow.completion = [opened, &order](const std::exception_ptr&) {
    opened.wait();
    order = 1;
  };
  saver.start(std::move(slow));
  EXPECT_TRUE(saver.busy());
  for (const std::string& late : {message_of([&] { saver.wait(Deadline::after({})); }),
                                  message_of([&] { saver.start({}, Deadline::after({})); })}) {
    EXPECT_TRUE(contains(late, "step-000001 takes too long") && contains(late, "--observe.run_dir")) << late;
  }
  std::jthread opener([&] { gate.set_value(); });
  SaveRequest next;
  next.completion = [&order](const std::exception_ptr&) { EXPECT_EQ(order.load(), 1); };
  // There is no folder of that token: the first has failed, and starting the second says so.
  const std::string message = message_of([&] { saver.start(std::move(next)); });
  EXPECT_TRUE(contains(message, "No such file")) << message;
  EXPECT_EQ(order.load(), 1);
}

TEST_F(Async, ErrorsAreReportedOnceAndTheNextSaveWorks) {
  AsyncSaver saver;
  set_pretended_space(50);
  saver.start(request_of(root(), 1));
  const std::string message = message_of([&] { saver.wait(); });
  EXPECT_TRUE(contains(message, "No space left on device") && contains(message, "needed: ")) << message;
  EXPECT_EQ(message_of([&] { saver.wait(); }), "");
  set_pretended_space(std::nullopt);
  saver.start(request_of(root(), 2));
  saver.wait();
  expect_step(find_newest(root()).newest->path, 2);
}

TEST_F(Async, ACompletionThatThrowsIsAnErrorOfTheSave) {
  AsyncSaver saver;
  SaveRequest request = request_of(root(), 1);
  request.completion = [held = request.completion](const std::exception_ptr&) { throw Error("not all have written"); };
  saver.start(std::move(request));
  EXPECT_EQ(message_of([&] { saver.wait(); }), "not all have written");
}

TEST_F(Async, TheEndWaitsForTheSaveUnderWay) {
  {
    AsyncSaver saver;
    saver.start(request_of(root(), 7));
  }
  expect_step(root() / "step-000007", 7);
}

}  // namespace
}  // namespace trireme
