// Operations in the background move on while the caller computes, and do not get into each other's way.
#include <gtest/gtest.h>

#include <thread>

#include "trireme/base/deadline.h"
#include "trireme/comm/world.h"

namespace trireme {
namespace {

using namespace std::chrono_literals;

/// Computes, never calling the library but for test(), until the handle is done.
bool done_while_computing(Handle& handle) {
  const Deadline deadline = Deadline::after(20s);
  volatile double x = 1;
  while (!handle.test()) {
    for (int i = 0; i < 1000; ++i) x = x * 1.0000001;
    if (deadline.expired()) return false;
  }
  return true;
}

TEST(Overlap, AllReducesFinishWithoutTheCallersHelp) {
  for (const Algorithm algorithm : {Algorithm::kAuto, Algorithm::kRing, Algorithm::kOrdered, Algorithm::kTree}) {
    run_as_threads(3, [&](World& world) {
      std::vector<float> data(1 << 18, static_cast<float>(world.rank()));
      CallOptions options;
      options.algorithm = algorithm;
      options.ordered = false;
      Handle handle = world.comm().start_all_reduce(data, ReduceOp::kSum, options);
      EXPECT_TRUE(done_while_computing(handle));
      handle.wait();
      EXPECT_EQ(data.front(), 3.f);
      EXPECT_EQ(data.back(), 3.f);
    });
  }
}

TEST(Overlap, MessagesFinishWithoutTheCallersHelp) {
  // Longer than any ring between two ranks.
  run_as_threads(2, [](World& world) {
    std::vector<float> out(1 << 20, static_cast<float>(world.rank())), in(1 << 20);
    const int peer = 1 - world.rank();
    Handle receiving = world.comm().start_recv(in, peer), sending = world.comm().start_send(out, peer);
    EXPECT_TRUE(done_while_computing(receiving));
    EXPECT_TRUE(done_while_computing(sending));
    EXPECT_EQ(in.back(), static_cast<float>(peer));
  });
}

TEST(Overlap, ManyAtOnceEndInOrder) {
  run_as_threads(4, [](World& world) {
    std::vector<std::vector<float>> data(30, std::vector<float>(1000));
    std::vector<Handle> handles;
    for (size_t i = 0; i < data.size(); ++i) {
      std::fill(data[i].begin(), data[i].end(), static_cast<float>(i));
      handles.push_back(world.comm().start_all_reduce(data[i]));
    }
    handles.back().wait();
    for (size_t i = 0; i < data.size(); ++i) {
      EXPECT_TRUE(handles[i].test()) << "the last is done, so all are";
      EXPECT_EQ(data[i].back(), static_cast<float>(4 * i));
    }
  });
}

TEST(Overlap, AMessageIsNotHeldUpByACollectiveBeforeIt) {
  // Rank 1 takes part in the all-reduce only after the message has come: rank 0 must move both at once.
  for (const Algorithm algorithm : {Algorithm::kAuto, Algorithm::kRing}) {
    WorldOptions patience;
    patience.call_timeout = 10s;
    run_as_threads(
        2,
        [&](World& world) {
          std::vector<float> message(1 << 20, static_cast<float>(world.rank())), gradient(1000, 1.f);
          CallOptions options;
          options.algorithm = algorithm;
          if (world.rank() == 0) {
            Handle reducing = world.comm().start_all_reduce(gradient, ReduceOp::kSum, options);
            Handle sending = world.comm().start_send(message, 1);
            sending.wait();
            reducing.wait();
          } else {
            world.comm().recv(message, 0);
            EXPECT_EQ(message.back(), 0.f);
            world.comm().all_reduce(gradient, ReduceOp::kSum, options);
          }
          EXPECT_EQ(gradient.back(), 2.f);
        },
        patience);
  }
}

TEST(Overlap, GroupsDoNotWaitForEachOther) {
  // The two ranks start the operations of two groups in opposite order.
  run_as_threads(2, [](World& world) {
    auto other = world.comm().split(0);
    std::vector<float> a(100'000, 1.f), b(100'000, 2.f);
    Handle first, second;
    if (world.rank() == 0) {
      first = world.comm().start_all_reduce(a);
      first.wait();
      second = other->start_all_reduce(b);
    } else {
      second = other->start_all_reduce(b);
      first = world.comm().start_all_reduce(a);
      first.wait();
    }
    second.wait();
    EXPECT_EQ(a.back(), 2.f);
    EXPECT_EQ(b.back(), 4.f);
  });
}

TEST(Overlap, ClosingAGroupEndsWhatIsUnderWay) {
  run_as_threads(2, [](World& world) {
    auto group = world.comm().split(0);
    std::vector<float> data(1000), more(1000);
    Handle receiving = group->start_recv(data, 1 - world.rank());  // nobody sends
    Handle reducing;
    if (world.rank() == 0) reducing = group->start_all_reduce(more);  // rank 1 does not take part
    const auto start = Clock::now();
    group.reset();
    EXPECT_THROW(receiving.wait(), CommError);
    if (world.rank() == 0) {
      EXPECT_THROW(reducing.wait(), CommError);
    }
    EXPECT_LT(Clock::now() - start, 5s);  // and from now on the job knows of it: no further operations here
  });
}

TEST(Overlap, LettingGoOfAHandleDoesNotCancel) {
  run_as_threads(2, [](World& world) {
    std::vector<float> data(100'000, 1.f);
    world.comm().start_all_reduce(data);
    world.comm().barrier();  // behind it
    EXPECT_EQ(data.back(), 2.f);
  });
}

}  // namespace
}  // namespace trireme
