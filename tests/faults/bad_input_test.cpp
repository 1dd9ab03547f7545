// What users get wrong, and what machines run out of: an exit code, the cause and the cure, in time, and nothing left.
#include <thread>

#include "faults/kill_trial.h"
#include "support/paths.h"
#include "trireme/comm/world.h"

namespace trireme {
namespace {

using namespace std::chrono_literals;

const std::string kProgram = program_path("loop_program");

/// Ends of ranks with `options`; a test fails when they take longer than `patience`.
struct Ends {
  Ends(const std::vector<std::string>& words, const RankProcesses::Options& options, Clock::duration patience)
      : ranks(
            [&] {
              std::vector<std::string> argv{kProgram};
              argv.insert(argv.end(), words.begin(), words.end());
              return argv;
            }(),
            options),
        codes(ranks.wait(patience)) {
    expect_no_leftovers(ranks);
  }

  /// Rank `rank` ended with `code`, and said all of this.
  void expect(int rank, int code, const std::vector<std::string>& words) {
    EXPECT_EQ(codes[static_cast<size_t>(rank)], code) << ranks.outputs();
    for (const std::string& word : words) {
      EXPECT_TRUE(contains(ranks[rank].output(), word)) << "rank " << rank << " does not say \"" << word << "\"\n"
                                                        << ranks.outputs();
    }
  }

  RankProcesses ranks;
  std::vector<int> codes;
};

RankProcesses::Options of_size(int size) {
  RankProcesses::Options options;
  options.size = size;
  return options;
}

/// In the manner of torchrun: RANK, MASTER_PORT and no token.
RankProcesses::Options by_port(int size, uint16_t port) {
  RankProcesses::Options options = of_size(size);
  options.master = "unused";
  for (const char* name : {"TRIREME_RANK", "TRIREME_WORLD_SIZE", "TRIREME_LOCAL_RANK", "TRIREME_LOCAL_SIZE",
                           "TRIREME_MASTER", "TRIREME_TOKEN", "TRIREME_JOB"})
    options.environment[name] = "";
  options.environment["WORLD_SIZE"] = std::to_string(size);
  options.environment["MASTER_ADDR"] = "127.0.0.1";
  options.environment["MASTER_PORT"] = std::to_string(port);
  for (int rank = 0; rank < size; ++rank) options.of_rank[rank]["RANK"] = std::to_string(rank);
  return options;
}

TEST(BadInput, PortInUse) {
  const Socket occupied = listen_on("127.0.0.1", 0, 16);
  const std::string port = std::to_string(local_address(occupied).port);
  Ends ends({"join_ms=1500"}, by_port(2, local_address(occupied).port), 8s);
  ends.expect(0, 1, {"127.0.0.1:" + port, "in use", "\n  "});
  ends.expect(1, 1, {"rank 0 did not answer", port, "\n  "});
}

TEST(BadInput, ByPortItWorksAndLeavesNoToken) {
  const uint16_t port = local_address(listen_on("127.0.0.1", 0, 16)).port;
  Ends ends({"steps=10", "join_ms=10000"}, by_port(3, port), 20s);
  for (int rank = 0; rank < 3; ++rank) ends.expect(rank, 0, {"done"});
}

TEST(BadInput, RankOutsideTheWorld) {
  RankProcesses::Options options = by_port(2, 2900);
  options.of_rank[1]["RANK"] = "5";
  options.of_rank[0]["RANK"] = "-1";
  Ends ends({}, options, 5s);
  ends.expect(0, 2, {"RANK=\"-1\"", "\n  "});
  ends.expect(1, 2, {"RANK=5 is outside the world", "WORLD_SIZE=2", "\n  "});
}

TEST(BadInput, TwoProcessesWithOneRank) {
  RankProcesses::Options options = of_size(3);
  options.of_rank[2]["TRIREME_RANK"] = "1";
  Ends ends({"join_ms=1500"}, options, 8s);
  ends.expect(0, 1, {"1 of 3 ranks is missing: 2", "\n  "});
  // Whichever of the two came second is told of the other.
  const bool first_won = contains(ends.ranks[2].output(), "taken");
  const int loser = first_won ? 2 : 1, winner = first_won ? 1 : 2;
  EXPECT_NE(ends.codes[static_cast<size_t>(loser)], 0);
  EXPECT_TRUE(contains(ends.ranks[loser].output(), fmt::format("pid {}", ends.ranks[winner].pid())))
      << ends.ranks.outputs();
  ends.expect(winner, 1, {"2"});
}

TEST(BadInput, WrongToken) {
  RankProcesses::Options options = of_size(2);
  options.of_rank[1]["TRIREME_TOKEN"] = "a guess";
  Ends ends({"join_ms=1500"}, options, 8s);
  ends.expect(0, 1, {"1 of 2 ranks is missing: 1", "\n  "});
  EXPECT_NE(ends.codes[1], 0);
  EXPECT_TRUE(contains(ends.ranks[1].output(), "token")) << ends.ranks.outputs();
  EXPECT_FALSE(contains(ends.ranks.outputs(), "the token of")) << "a secret was printed\n" << ends.ranks.outputs();
}

TEST(BadInput, PeerOfAnotherJob) {
  RankProcesses::Options options = of_size(2);
  options.of_rank[1]["TRIREME_JOB"] = "yesterday's";
  Ends ends({"join_ms=1500"}, options, 8s);
  ends.expect(0, 1, {"1 of 2 ranks is missing: 1"});
  EXPECT_NE(ends.codes[1], 0);
  EXPECT_TRUE(contains(ends.ranks[1].output(), "another job")) << ends.ranks.outputs();
}

TEST(BadInput, MissingRankAtTheStart) {
  RankProcesses::Options options = of_size(2);
  options.environment["TRIREME_WORLD_SIZE"] = "4";
  options.environment["TRIREME_LOCAL_SIZE"] = "4";
  Ends ends({"join_ms=1000"}, options, 8s);
  for (int rank = 0; rank < 2; ++rank) ends.expect(rank, 1, {"2 of 4 ranks are missing: 2, 3", "\n  "});
}

TEST(BadInput, UnknownNames) {
  RankProcesses::Options options = of_size(2);
  options.environment["TRIREME_TRANSPORT"] = "carrier-pigeon";
  Ends pigeon({"join_ms=3000"}, options, 8s);
  for (int rank = 0; rank < 2; ++rank) pigeon.expect(rank, 2, {"carrier-pigeon", "tcp", "mpi", "\n  "});

  options = of_size(2);
  options.environment["TRIREME_ALGORITHM"] = "rign";
  Ends rign({"join_ms=3000"}, options, 8s);
  for (int rank = 0; rank < 2; ++rank) rign.expect(rank, 2, {"rign", "did you mean 'ring'", "\n  "});

  options = of_size(2);
  options.environment["TRIREME_FAULT"] = "rank=1,piont=x,kind=kill";
  Ends fault({"join_ms=3000"}, options, 8s);
  for (int rank = 0; rank < 2; ++rank) fault.expect(rank, 2, {"piont", "did you mean point", "\n  "});
}

TEST(BadInput, NoMemoryForABuffer) {
  // Rank 1 may have files, and so shared memory, of 4 MiB.
  Ends ends({"1:fsize=4194304", "1:allocate=50000000"}, of_size(3), 10s);
  ends.expect(1, 1, {"get 47.7 MiB of shared memory", "File too large", "ulimit -f", "TRIREME_TRANSPORT=tcp"});
  for (const int rank : {0, 2}) {
    const auto caught = caught_in(ends.ranks[rank].output());
    ASSERT_TRUE(caught) << ends.ranks.outputs();
    EXPECT_EQ(caught->culprit, 1) << caught->message;
  }
}

TEST(BadInput, NoMemoryAtTheStart) {
  Ends ends({"join_ms=1500", "1:fsize=4096"}, of_size(2), 8s);
  ends.expect(1, 1, {"memory file", "File too large", "ulimit -f"});
  ends.expect(0, 1, {"1 of 2 ranks is missing: 1"});
}

TEST(BadInput, NoMemoryInACollective) {
  for (const bool in_a_group : {false, true}) {
    RankProcesses::Options options = of_size(3);
    options.environment["TRIREME_FAULT"] =
        fmt::format("rank=2,point=heap.commit,kind=errno:ENOSPC,count={}", in_a_group ? 1 : 2);
    Ends ends(in_a_group ? std::vector<std::string>{"split=1"} : std::vector<std::string>{}, options, 10s);
    ends.expect(2, 1, {"of shared memory", "No space left on device", "TRIREME_TRANSPORT=tcp"});
    for (const int rank : {0, 1}) {
      ends.expect(rank, 3, {"rank 2 (", "of shared memory", "No space left on device", "TRIREME_TRANSPORT=tcp"});
    }
  }
}

TEST(BadInput, ExceptionOfARankReachesTheOthers) {
  for (const Wires wires : {Wires::kSharedMemory, Wires::kTcp}) {
    for (const int thrower : {0, 2}) {
      RankProcesses::Options options = of_size(3);
      options.wires = wires;
      Ends ends({fmt::format("throw={}", thrower)}, options, 8s);
      ends.expect(thrower, 1, {"out of coffee"});
      for (int rank = 0; rank < 3; ++rank) {
        if (rank != thrower) ends.expect(rank, 3, {fmt::format("rank {} (", thrower), "exception"});
      }
    }
  }
}

TEST(BadInput, WrongSizesAreRefusedBeforeAnythingMoves) {
  run_as_threads(2, [](World& world) {
    Communicator& comm = world.comm();
    std::vector<float> five(5), ten(10);
    std::vector<double> doubles(10);
    const std::vector<size_t> three{1, 2, 3}, sizes{5, 5}, other_sizes{4, 6};
    EXPECT_THROW(comm.all_gather(five, five), UsageError);
    EXPECT_THROW(comm.all_gather(five, doubles), UsageError);
    EXPECT_THROW(comm.reduce_scatter(five, five, ReduceOp::kSum), UsageError);
    EXPECT_THROW(comm.all_to_all(five, five), UsageError);
    EXPECT_THROW(comm.all_gather_v(five, ten, three), UsageError);
    EXPECT_THROW(comm.all_to_all_v(ten, three, ten, sizes), UsageError);
    EXPECT_THROW(comm.all_to_all_v(five, sizes, ten, sizes), UsageError);
    // What a rank sends to itself is what it gets from itself.
    EXPECT_THROW(comm.all_to_all_v(ten, sizes, ten, world.rank() == 0 ? other_sizes : std::vector<size_t>{6, 4}),
                 UsageError);
    EXPECT_THROW(comm.broadcast(five, 2), UsageError);
    EXPECT_THROW(comm.broadcast(five, -1), UsageError);
    EXPECT_THROW(comm.send(five, 2), UsageError);
    if (world.rank() == 0) {
      EXPECT_THROW(comm.gather(five, five, 0), UsageError);
      EXPECT_THROW(comm.scatter(five, five, 0), UsageError);
    }
    // Nothing is broken by it.
    comm.all_reduce(five);
  });
}

TEST(BadInput, UseAfterFailureThrowsTheSameAtOnce) {
  run_as_threads(3, [](World& world) {
    Communicator& comm = world.comm();
    auto group = comm.split(0);
    CallOptions short_call;
    short_call.timeout = 200ms;
    std::vector<float> data(10), more(30);
    std::string first;
    if (world.rank() == 1) {
      std::this_thread::sleep_for(400ms);
    } else {
      try {
        comm.all_reduce(data, ReduceOp::kSum, short_call);
        ADD_FAILURE() << "a rank was missing";
      } catch (const CommError& error) {
        first = error.what();
      }
    }
    const auto start = Clock::now();
    const auto same = [&](auto call) {
      try {
        call();
        ADD_FAILURE() << "a broken communicator worked";
      } catch (const CommError& error) {
        if (first.empty()) first = error.what();
        EXPECT_EQ(error.what(), first);
      }
    };
    same([&] { comm.all_reduce(data); });
    same([&] { comm.barrier(); });
    same([&] { comm.send(data, 0); });
    same([&] { comm.recv(data, 0); });
    same([&] { comm.split(0); });
    same([&] { comm.start_all_gather(data, more); });
    same([&] { world.leave(); });
    // Other groups of the job are told as well; theirs is the job's first failure.
    EXPECT_THROW(group->barrier(), CommError);
    EXPECT_THROW(group->start_recv(data, 0), CommError);
    EXPECT_LT(Clock::now() - start, 500ms);
  });
}

TEST(BadInput, ClosingAGroupWithWorkUnderWayEndsIt) {
  const auto start = Clock::now();
  run_as_threads(3, [](World& world) {
    auto group = world.comm().split(0);
    std::vector<float> data(100'000), in(10);
    if (world.rank() == 0) {
      Handle reduced = group->start_all_reduce(data);
      Handle received = group->start_recv(in, 2, 7);
      std::this_thread::sleep_for(50ms);
      group.reset();  // the others have not come, or wait inside
      EXPECT_THROW(reduced.wait(), CommError);
      EXPECT_THROW(received.wait(), CommError);
    } else if (world.rank() == 1) {
      // Rank 2 never comes, and rank 0 goes.
      try {
        group->all_reduce(data);
        ADD_FAILURE() << "the others had gone";
      } catch (const CommError& error) {
        EXPECT_EQ(error.culprit(), 0) << error.what();
        EXPECT_EQ(error.where(), (Where{.rank = 1, .peer = 0}));
        EXPECT_TRUE(contains(error.what(), "closed group")) << error.what();
      }
    }
  });
  EXPECT_LT(Clock::now() - start, 5s);
}

TEST(BadInput, WaitingForAMessageInVainNamesIt) {
  run_as_threads(2, [](World& world) {
    std::vector<float> data(10);
    if (world.rank() == 0) {
      Handle handle = world.comm().start_recv(data, 1, 7);
      try {
        handle.wait(50ms);
        ADD_FAILURE() << "nobody has sent anything";
      } catch (const CommError& error) {
        EXPECT_TRUE(contains(error.what(), "rank 0 (") && contains(error.what(), "with rank 1 (") &&
                    contains(error.what(), "tag 7"))
            << error.what();
      }
      world.comm().barrier();
      handle.wait();  // it went on
    } else {
      world.comm().barrier();
      world.comm().send(data, 0, 7);
    }
  });
}

TEST(BadInput, ExceptionOfAThreadReachesTheOthers) {
  try {
    run_as_threads(4, [](World& world) {
      if (world.rank() == 2) throw std::runtime_error("out of coffee");
      std::vector<float> data(10);
      try {
        for (;;) world.comm().all_reduce(data);
      } catch (const CommError& error) {
        EXPECT_EQ(error.culprit(), 2);
        EXPECT_TRUE(contains(error.what(), "rank 2") && contains(error.what(), "out of coffee")) << error.what();
      }
    });
    ADD_FAILURE() << "the exception was lost";
  } catch (const std::runtime_error& error) {
    EXPECT_STREQ(error.what(), "out of coffee");
  }
}

}  // namespace
}  // namespace trireme
