#include "support/mismatch_case.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <numeric>
#include <random>
#include <thread>

#include "trireme/comm/reduce/reduce.h"

namespace trireme {
namespace {

using Random = std::mt19937_64;

// Small whole numbers: every type holds them, and five of them added or multiplied.
double value_of(int rank, size_t i) { return static_cast<double>((static_cast<size_t>(rank) * 5 + i * 3 + i / 7) % 4); }

double get(ConstData data, size_t i) {
  const std::byte* at = data.bytes + i * size_of(data.type);
  switch (data.type) {
    case DataType::kFloat:
      return *reinterpret_cast<const float*>(at);
    case DataType::kDouble:
      return *reinterpret_cast<const double*>(at);
    case DataType::kHalf:
      return to_float(*reinterpret_cast<const Half*>(at));
    case DataType::kBFloat16:
      return to_float(*reinterpret_cast<const BFloat16*>(at));
    case DataType::kInt32:
      return *reinterpret_cast<const int32_t*>(at);
    case DataType::kInt64:
      return static_cast<double>(*reinterpret_cast<const int64_t*>(at));
    case DataType::kUInt8:
      return *reinterpret_cast<const uint8_t*>(at);
  }
  return 0;
}

void set(Data data, size_t i, double v) {
  std::byte* at = data.bytes + i * size_of(data.type);
  switch (data.type) {
    case DataType::kFloat:
      *reinterpret_cast<float*>(at) = static_cast<float>(v);
      break;
    case DataType::kDouble:
      *reinterpret_cast<double*>(at) = v;
      break;
    case DataType::kHalf:
      *reinterpret_cast<Half*>(at) = to_half(static_cast<float>(v));
      break;
    case DataType::kBFloat16:
      *reinterpret_cast<BFloat16*>(at) = to_bfloat16(static_cast<float>(v));
      break;
    case DataType::kInt32:
      *reinterpret_cast<int32_t*>(at) = static_cast<int32_t>(v);
      break;
    case DataType::kInt64:
      *reinterpret_cast<int64_t*>(at) = static_cast<int64_t>(v);
      break;
    case DataType::kUInt8:
      *reinterpret_cast<uint8_t*>(at) = static_cast<uint8_t>(v);
      break;
  }
}

double combined(ReduceOp op, DataType type, int ranks, size_t i) {
  double result = value_of(0, i);
  for (int rank = 1; rank < ranks; ++rank) {
    const double v = value_of(rank, i);
    switch (op) {
      case ReduceOp::kSum:
      case ReduceOp::kAverage:
        result += v;
        break;
      case ReduceOp::kMin:
        result = std::min(result, v);
        break;
      case ReduceOp::kMax:
        result = std::max(result, v);
        break;
      case ReduceOp::kProduct:
        result *= v;
        break;
    }
  }
  if (op != ReduceOp::kAverage) return result;
  const bool whole = type == DataType::kInt32 || type == DataType::kInt64 || type == DataType::kUInt8;
  return whole ? std::trunc(result / ranks) : result / ranks;
}

/// Operands of one call.
class Operand {
 public:
  Operand(Communicator& comm, const PlannedCall& call, size_t count) : count_(count), type_(call.type) {
    if (call.registered) {
      buffer_ = comm.allocate(std::max<size_t>(count * size_of(type_), 1));
    } else {
      own_.resize(count * size_of(type_) + 1);
    }
  }
  Data data() { return {buffer_.data() != nullptr ? buffer_.data() : own_.data(), count_, type_}; }
  /// As a rank fills it.
  Data filled(int rank) {
    for (size_t i = 0; i < count_; ++i) set(data(), i, value_of(rank, i));
    return data();
  }
  /// Nothing that a right answer could be mistaken for.
  Data cleared() {
    for (size_t i = 0; i < count_; ++i) set(data(), i, 77);
    return data();
  }

 private:
  size_t count_;
  DataType type_;
  Buffer buffer_;
  std::vector<std::byte> own_;
};

struct WrongData {
  std::string what;
};

void expect(ConstData got, size_t i, double wanted, const char* what) {
  const double value = get(got, i);
  if (std::abs(value - wanted) <= 0.01 * std::max(1.0, std::abs(wanted))) return;
  throw WrongData{fmt::format("{}: element {} is {} instead of {}", what, i, value, wanted)};
}

/// Runs the call; throws WrongData unless the result is what a world of ranks that all agree with this one would get.
void perform(Communicator& comm, const PlannedCall& call, const CallOptions& timeout) {
  const int p = comm.size(), me = comm.rank();
  const size_t n = call.count, all = n * static_cast<size_t>(p);
  CallOptions options = timeout;
  const auto run = [&](auto blocking, auto starting) {
    if (call.in_background) {
      starting().wait();
    } else {
      blocking();
    }
  };
  switch (call.kind) {
    case OperationKind::kBarrier:
      run([&] { comm.barrier(options); }, [&] { return comm.start_barrier(options); });
      break;
    case OperationKind::kBroadcast: {
      Operand data(comm, call, n);
      const Data d = me == call.root ? data.filled(me) : data.cleared();
      run([&] { comm.broadcast(d, call.root, options); }, [&] { return comm.start_broadcast(d, call.root, options); });
      for (size_t i = 0; i < n; ++i) expect(d, i, value_of(call.root, i), "broadcast");
      break;
    }
    case OperationKind::kScatter: {
      Operand from(comm, call, all), to(comm, call, n);
      const Data in = from.filled(me), out = to.cleared();
      run([&] { comm.scatter(in, out, call.root, options); },
          [&] { return comm.start_scatter(in, out, call.root, options); });
      for (size_t i = 0; i < n; ++i) expect(out, i, value_of(call.root, static_cast<size_t>(me) * n + i), "scatter");
      break;
    }
    case OperationKind::kGather: {
      Operand from(comm, call, n), to(comm, call, all);
      const Data in = from.filled(me), out = to.cleared();
      run([&] { comm.gather(in, out, call.root, options); },
          [&] { return comm.start_gather(in, out, call.root, options); });
      for (size_t i = 0; me == call.root && i < all; ++i)
        expect(out, i, value_of(static_cast<int>(i / n), i % n), "gather");
      break;
    }
    case OperationKind::kAllGather: {
      Operand from(comm, call, n), to(comm, call, all);
      const Data in = from.filled(me), out = to.cleared();
      run([&] { comm.all_gather(in, out, options); }, [&] { return comm.start_all_gather(in, out, options); });
      for (size_t i = 0; i < all; ++i) expect(out, i, value_of(static_cast<int>(i / n), i % n), "all-gather");
      break;
    }
    case OperationKind::kAllGatherV: {
      std::vector<size_t> counts;
      for (const auto& row : call.counts) counts.push_back(row[0]);
      Operand from(comm, call, counts[static_cast<size_t>(me)]);
      Operand to(comm, call, std::accumulate(counts.begin(), counts.end(), size_t{0}));
      const Data in = from.filled(me), out = to.cleared();
      run([&] { comm.all_gather_v(in, out, counts, options); },
          [&] { return comm.start_all_gather_v(in, out, counts, options); });
      size_t at = 0;
      for (int r = 0; r < p; ++r) {
        for (size_t i = 0; i < counts[static_cast<size_t>(r)]; ++i) expect(out, at++, value_of(r, i), "all-gather");
      }
      break;
    }
    case OperationKind::kReduce: {
      Operand from(comm, call, n), to(comm, call, n);
      const Data in = from.filled(me), out = to.cleared();
      run([&] { comm.reduce(in, out, call.op, call.root, options); },
          [&] { return comm.start_reduce(in, out, call.op, call.root, options); });
      for (size_t i = 0; me == call.root && i < n; ++i) expect(out, i, combined(call.op, call.type, p, i), "reduce");
      break;
    }
    case OperationKind::kReduceScatter: {
      Operand from(comm, call, all), to(comm, call, n);
      const Data in = from.filled(me), out = to.cleared();
      run([&] { comm.reduce_scatter(in, out, call.op, options); },
          [&] { return comm.start_reduce_scatter(in, out, call.op, options); });
      for (size_t i = 0; i < n; ++i)
        expect(out, i, combined(call.op, call.type, p, static_cast<size_t>(me) * n + i), "reduce-scatter");
      break;
    }
    case OperationKind::kAllReduce: {
      Operand data(comm, call, n);
      const Data d = data.filled(me);
      options.algorithm = call.algorithm;
      options.ordered = false;
      run([&] { comm.all_reduce(d, call.op, options); }, [&] { return comm.start_all_reduce(d, call.op, options); });
      for (size_t i = 0; i < n; ++i) expect(d, i, combined(call.op, call.type, p, i), "all-reduce");
      break;
    }
    case OperationKind::kAllToAll: {
      Operand from(comm, call, all), to(comm, call, all);
      const Data in = from.filled(me), out = to.cleared();
      run([&] { comm.all_to_all(in, out, options); }, [&] { return comm.start_all_to_all(in, out, options); });
      for (size_t i = 0; i < all; ++i)
        expect(out, i, value_of(static_cast<int>(i / n), static_cast<size_t>(me) * n + i % n), "all-to-all");
      break;
    }
    case OperationKind::kAllToAllV: {
      const std::vector<size_t>& sent = call.counts[static_cast<size_t>(me)];
      std::vector<size_t> received;
      for (const auto& row : call.counts) received.push_back(row[static_cast<size_t>(me)]);
      Operand from(comm, call, std::accumulate(sent.begin(), sent.end(), size_t{0}));
      Operand to(comm, call, std::accumulate(received.begin(), received.end(), size_t{0}));
      // Each block has values of its own, wherever it begins.
      const auto value = [&](int a, int b, size_t i) { return value_of(a * p + b, i); };
      const Data in = from.data(), out = to.cleared();
      for (size_t b = 0, at = 0; b < sent.size(); ++b) {
        for (size_t i = 0; i < sent[b]; ++i) set(in, at++, value(me, static_cast<int>(b), i));
      }
      run([&] { comm.all_to_all_v(in, sent, out, received, options); },
          [&] { return comm.start_all_to_all_v(in, sent, out, received, options); });
      for (size_t a = 0, at = 0; a < received.size(); ++a) {
        for (size_t i = 0; i < received[a]; ++i) expect(out, at++, value(static_cast<int>(a), me, i), "all-to-all");
      }
      break;
    }
    default:
      throw std::logic_error("no such call in a plan");
  }
}

template <typename T>
const T& one_of(Random& random, const std::vector<T>& choices) {
  return choices[random() % choices.size()];
}

const std::vector<DataType> kTypes{DataType::kFloat, DataType::kDouble, DataType::kHalf, DataType::kBFloat16,
                                   DataType::kInt32, DataType::kInt64,  DataType::kUInt8};
const std::vector<ReduceOp> kOps{ReduceOp::kSum, ReduceOp::kAverage, ReduceOp::kMin, ReduceOp::kMax,
                                 ReduceOp::kProduct};
const std::vector<size_t> kSizes{1, 3, 17, 100, 1000, 5000, 40'000};
const std::vector<OperationKind> kKinds{
    OperationKind::kBarrier,   OperationKind::kBroadcast,  OperationKind::kScatter,  OperationKind::kGather,
    OperationKind::kAllGather, OperationKind::kAllGatherV, OperationKind::kReduce,   OperationKind::kReduceScatter,
    OperationKind::kAllReduce, OperationKind::kAllToAll,   OperationKind::kAllToAllV};
const std::vector<OperationKind> kWithRoot{OperationKind::kBroadcast, OperationKind::kScatter, OperationKind::kGather,
                                           OperationKind::kReduce};
const std::vector<OperationKind> kReducing{OperationKind::kReduce, OperationKind::kReduceScatter,
                                           OperationKind::kAllReduce};
const std::vector<OperationKind> kWithLists{OperationKind::kAllGatherV, OperationKind::kAllToAllV};

std::vector<Algorithm> algorithms(bool one_host) {
  std::vector<Algorithm> all(all_algorithms().begin(), all_algorithms().end());
  if (!one_host) std::erase(all, Algorithm::kInPlace);
  return all;
}

PlannedCall make_call(Random& random, OperationKind kind, int ranks, bool one_host) {
  PlannedCall call;
  call.kind = kind;
  call.type = one_of(random, kTypes);
  call.count = one_of(random, kSizes);
  call.root = static_cast<int>(random() % static_cast<uint64_t>(ranks));
  call.op = one_of(random, kOps);
  if (kind == OperationKind::kAllReduce && random() % 2 == 0) call.algorithm = one_of(random, algorithms(one_host));
  call.registered = random() % 2 == 0;
  call.in_background = random() % 4 == 0;
  call.counts.assign(static_cast<size_t>(ranks), std::vector<size_t>(static_cast<size_t>(ranks)));
  for (auto& row : call.counts) {
    for (size_t& count : row) count = random() % 50 * (random() % 5 == 0 ? 100 : 1);
  }
  return call;
}

template <typename T>
T another(Random& random, const std::vector<T>& choices, T than) {
  T other = than;
  while (other == than) other = one_of(random, choices);
  return other;
}

OperationKind a_kind(Random& random, const std::vector<OperationKind>& kinds, bool with_data) {
  for (;;) {
    const OperationKind kind = one_of(random, kinds);
    if (!with_data || kind != OperationKind::kBarrier) return kind;
  }
}

/// Another list at the odd rank, which stays sound in itself.
void change_counts(Random& random, PlannedCall& call, int odd, int ranks) {
  const auto me = static_cast<size_t>(odd);
  const auto other =
      static_cast<size_t>((odd + 1 + static_cast<int>(random() % static_cast<uint64_t>(ranks - 1))) % ranks);
  const size_t more = 1 + random() % 9;
  if (call.kind == OperationKind::kAllGatherV) {
    // With the same total or another.
    call.counts[other][0] += more;
    if (random() % 2 == 0) call.counts[me][0] -= std::min(more, call.counts[me][0]);
    return;
  }
  (random() % 2 == 0 ? call.counts[me][other] : call.counts[other][me]) += more;
}

std::string words_of(const PlannedCall& call) {
  OperationDigest digest;
  digest.kind = call.kind;
  digest.type = call.type;
  digest.count = call.count;
  digest.root = call.root;
  digest.op = call.op;
  digest.algorithm = call.algorithm;
  return fmt::format("{}{}{}", trireme::describe(digest), call.registered ? " registered" : "",
                     call.in_background ? " in the background" : "");
}

}  // namespace

std::string_view name_of(Mismatch mismatch) {
  constexpr std::string_view kNames[kNumMismatches] = {"operation", "type",      "count",  "root",   "reduction",
                                                       "order",     "algorithm", "counts", "missing"};
  return kNames[static_cast<int>(mismatch)];
}

std::string MismatchCase::describe() const {
  std::string text = fmt::format("seed {}: {} of rank {} of {};", seed, name_of(mismatch), odd, ranks);
  for (const PlannedCall& call : most) text += " " + words_of(call);
  text += "; the odd one:";
  for (const PlannedCall& call : odds) text += " " + words_of(call);
  return text;
}

MismatchCase make_mismatch_case(uint64_t seed, int max_ranks, bool one_host) {
  Random random(seed * 0x9E3779B97F4A7C15ull + 1);
  MismatchCase plan;
  plan.seed = seed;
  plan.ranks = 2 + static_cast<int>(random() % static_cast<uint64_t>(max_ranks - 1));
  plan.odd = static_cast<int>(random() % static_cast<uint64_t>(plan.ranks));
  // One that is missing costs its deadline, so there are fewer of those.
  plan.mismatch = static_cast<Mismatch>(seed % (2 * kNumMismatches - 1) % kNumMismatches);
  for (uint64_t i = random() % 3; i > 0; --i)
    plan.before.push_back(make_call(random, one_of(random, kKinds), plan.ranks, one_host));

  const auto call_of = [&](const std::vector<OperationKind>& kinds, bool with_data) {
    return make_call(random, a_kind(random, kinds, with_data), plan.ranks, one_host);
  };
  PlannedCall usual = call_of(kKinds, plan.mismatch == Mismatch::kType), odd = usual;
  switch (plan.mismatch) {
    case Mismatch::kOperation:
      odd = make_call(random, another(random, kKinds, usual.kind), plan.ranks, one_host);
      if (random() % 2 == 0) odd.type = usual.type, odd.count = usual.count, odd.root = usual.root, odd.op = usual.op;
      break;
    case Mismatch::kType:
      // Of the same size more often than not, since that is the hardest to see.
      odd.type = another(random, kTypes, usual.type);
      if (random() % 2 == 0) usual.type = DataType::kFloat, odd.type = DataType::kInt32;
      break;
    case Mismatch::kCount:
      do {
        usual = odd = call_of(kKinds, true);
      } while (usual.kind == OperationKind::kAllGatherV || usual.kind == OperationKind::kAllToAllV);
      odd.count = random() % 2 == 0 ? usual.count + 1 + random() % 3 : another(random, kSizes, usual.count);
      break;
    case Mismatch::kRoot:
      usual = odd = call_of(kWithRoot, true);
      odd.root =
          static_cast<int>((static_cast<uint64_t>(usual.root) + 1 + random() % static_cast<uint64_t>(plan.ranks - 1)) %
                           static_cast<uint64_t>(plan.ranks));
      break;
    case Mismatch::kReduction:
      usual = odd = call_of(kReducing, true);
      odd.op = another(random, kOps, usual.op);
      break;
    case Mismatch::kAlgorithm:
      usual = make_call(random, OperationKind::kAllReduce, plan.ranks, one_host);
      usual.algorithm = one_of(random, algorithms(one_host));
      odd = usual;
      odd.algorithm = another(random, algorithms(one_host), usual.algorithm);
      break;
    case Mismatch::kCounts:
      usual = odd = call_of(kWithLists, true);
      change_counts(random, odd, plan.odd, plan.ranks);
      break;
    case Mismatch::kOrder:
    case Mismatch::kMissing:
      break;
  }
  plan.calls_again = random() % 3 != 0;
  plan.most = {usual};
  plan.odds = {odd};
  plan.timeout = std::chrono::seconds(2);
  if (plan.mismatch == Mismatch::kOrder) {
    const PlannedCall second = make_call(random, another(random, kKinds, usual.kind), plan.ranks, one_host);
    plan.most = {usual, second};
    plan.odds = {second, usual};
  }
  if (plan.mismatch == Mismatch::kMissing) {
    plan.odds.clear();
    plan.timeout = std::chrono::milliseconds(300);
  }
  return plan;
}

MismatchOutcome play(World& world, const MismatchCase& plan) {
  Communicator& comm = world.comm();
  const bool is_odd = comm.rank() == plan.odd;
  MismatchOutcome outcome;
  CallOptions patient, options;
  patient.timeout = std::chrono::seconds(20);
  options.timeout = plan.timeout;
  Clock::time_point start = Clock::now();
  using Where = MismatchOutcome::Where;
  Where here = Where::kThere;  // a slow rank may hear of it before it gets there
  try {
    for (const PlannedCall& call : plan.before) perform(comm, call, patient);
    start = Clock::now();
    for (const PlannedCall& call : is_odd ? plan.odds : plan.most) perform(comm, call, options);
    if (is_odd && plan.mismatch == Mismatch::kMissing) std::this_thread::sleep_for(plan.timeout * 2);
    here = Where::kNextCall;
    std::vector<float> data(5);
    if (plan.calls_again) comm.all_reduce(data, ReduceOp::kSum, options);
    here = Where::kLeave;
    world.leave();
  } catch (const CommError& error) {
    outcome.where = here;
    outcome.message = error.what();
    outcome.culprit = error.culprit();
  } catch (const UsageError& error) {
    outcome.where = here;
    outcome.message = error.what();
    outcome.usage_error = true;
  } catch (const WrongData& wrong) {
    outcome.trouble = "wrong data without a word: " + wrong.what;
  } catch (const std::exception& error) {
    outcome.trouble = fmt::format("an exception of another kind: {}", error.what());
  } catch (...) {
    outcome.trouble = "an exception that is no std::exception";
  }
  outcome.seconds = std::chrono::duration<double>(Clock::now() - start).count();
  if (outcome.message.empty() || outcome.usage_error) return outcome;

  // Broken for good: the same error, at once.
  const auto again = Clock::now();
  try {
    comm.barrier(patient);
    outcome.trouble = "a broken communicator worked again";
  } catch (const CommError& error) {
    if (error.what() != outcome.message)
      outcome.trouble = fmt::format("said another thing the second time: {}", error.what());
  }
  if (Clock::now() - again > std::chrono::milliseconds(500)) outcome.trouble = "was slow the second time";
  return outcome;
}

std::string judge(const MismatchCase& plan, const std::vector<MismatchOutcome>& outcomes) {
  std::string text;
  for (size_t rank = 0; rank < outcomes.size(); ++rank) {
    const MismatchOutcome& outcome = outcomes[rank];
    const auto complain = [&](const std::string& what) {
      text += fmt::format("rank {}: {}\n  {}\n", rank, what, outcome.message);
    };
    if (!outcome.trouble.empty()) complain(outcome.trouble);
    if (outcome.where == MismatchOutcome::Where::kNowhere) {
      complain("was told nothing");
      continue;
    }
    if (outcome.usage_error) {
      if (static_cast<int>(rank) != plan.odd) complain("got a usage error, though it is not the odd one");
      continue;
    }
    const std::string& message = outcome.message;
    if (message.find("rank ") == std::string::npos) complain("the message names no rank");
    const bool has_number = message.find('#') != std::string::npos || message.find("operation ") != std::string::npos;
    if (!has_number) complain("the message has no sequence number");
    const bool names_operation = std::any_of(kKinds.begin(), kKinds.end(), [&](OperationKind kind) {
      return message.find(name_of(kind)) != std::string::npos;
    });
    if (!names_operation) complain("the message names no operation");
    if (outcome.culprit >= 0 && outcome.culprit != plan.odd)
      complain(fmt::format("blames rank {} instead of rank {}", outcome.culprit, plan.odd));
  }
  return text.empty() ? text : plan.describe() + "\n" + text;
}

std::string to_line(const MismatchOutcome& outcome) {
  return nlohmann::json{{"where", static_cast<int>(outcome.where)},
                        {"message", outcome.message},
                        {"culprit", outcome.culprit},
                        {"usage", outcome.usage_error},
                        {"seconds", outcome.seconds},
                        {"trouble", outcome.trouble}}
      .dump();
}

MismatchOutcome parse_outcome(const std::string& line) {
  const auto json = nlohmann::json::parse(line);
  MismatchOutcome outcome;
  outcome.where = static_cast<MismatchOutcome::Where>(json.at("where").get<int>());
  outcome.message = json.at("message");
  outcome.culprit = json.at("culprit");
  outcome.usage_error = json.at("usage");
  outcome.seconds = json.at("seconds");
  outcome.trouble = json.at("trouble");
  return outcome;
}

}  // namespace trireme
