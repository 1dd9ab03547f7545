#include "trireme/comm/communicator_impl.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <thread>

#include "trireme/base/fault.h"
#include "trireme/base/text.h"
#include "trireme/comm/transport/ring_link.h"

namespace trireme {
namespace {

constexpr int kSpins = 400;  // some microseconds
constexpr int kYields = 400;
constexpr uint16_t kMessageLane = 64;  // of point to point; collectives use the lanes below

size_t ring_capacity(int members) { return members <= 16 ? 256 * 1024 : members <= 128 ? 64 * 1024 : 16 * 1024; }

}  // namespace

std::string RankContext::describe(int world_rank) const {
  if (control) {
    const auto& members = control->members();
    if (static_cast<size_t>(world_rank) < members.size()) {
      const Member& member = members[static_cast<size_t>(world_rank)];
      return fmt::format("rank {} ({}, pid {})", world_rank, member.host_name, member.pid);
    }
  }
  return fmt::format("rank {}", world_rank);
}

void RankContext::sweep_retired(bool all) {
  std::lock_guard lock(retired_mutex);
  std::erase_if(retired, [&](const Retired& group) {
    if (!all && (group.left == nullptr || group.left->load(std::memory_order_acquire) < group.members)) return false;
    for (void* memory : group.memory) space->release(memory);
    return true;
  });
}

Communicator::Impl::Impl(std::shared_ptr<RankContext> context_, Group group_)
    : context(std::move(context_)),
      group(std::move(group_)),
      queue([this] { return pump(); }, [this](GpuTask& task) { return watch(task, true); }) {
  if (group.seats != nullptr) {
    board = std::make_unique<Board>(group.seats, group.rank, group.world_ranks, *context->space);
    host_shared.emplace(*board, *context->space, BoardTuning{});
  }
  endpoint = std::make_unique<Endpoint>(
      group.rank, size(), [this](int peer) { return make_link(peer); }, mailbox_of(group.rank), group.world_ranks,
      context->machines.of_group(group.world_ranks).num_hosts() == 1);
  std::lock_guard lock(context->recorders_mutex);
  context->recorders.emplace_back(group.name, &recorder);
}

Communicator::Impl::~Impl() {
  closing_since = Clock::now();
  closing.store(true);
  queue.stop();
  gpu.reset();
  for (const auto& [ticket, state] : messages) {
    if (ticket->done.load(std::memory_order_acquire)) continue;
    state->finish(std::make_exception_ptr(CommError("the communicator was closed before the message had gone", -1)));
  }
  inside_host.reset();
  between_hosts.reset();
  {
    std::lock_guard lock(context->recorders_mutex);
    std::erase_if(context->recorders, [this](const auto& entry) { return entry.second == &recorder; });
  }
  endpoint.reset();  // its links give their rings to retired_memory
  RankContext::Retired retired;
  retired.memory = std::move(retired_memory);
  if (host_shared) {
    if (void* ring = host_shared->give_up_ring()) retired.memory.push_back(ring);
  }
  retired.memory.insert(retired.memory.end(), group.owned_memory.begin(), group.owned_memory.end());
  if (retired.memory.empty()) return;
  // Very large groups are not worth the visit to every peer: their memory goes when the world does.
  if (!group.mailboxes.empty() && size() <= 128) {
    retired.left = &mailbox_of(group.rank)->left;
    for (int member = 0; member < size(); ++member) {
      try {
        Mailbox* mailbox = mailbox_of(member);
        if (mailbox == nullptr) continue;
        ++retired.members;
        mailbox->left.fetch_add(1, std::memory_order_acq_rel);
      } catch (const std::exception&) {
        ++retired.members;  // it has ended without a word: the memory stays until this world ends
      }
    }
  }
  {
    std::lock_guard lock(context->retired_mutex);
    context->retired.push_back(std::move(retired));
  }
  context->sweep_retired();
}

Mailbox* Communicator::Impl::mailbox_of(int member) {
  const int world_rank = group.world_ranks[static_cast<size_t>(member)];
  if (!group.has_neighbours || !context->same_host(world_rank, context->rank)) return nullptr;
  std::byte* mailbox = group.mailboxes.empty()
                           ? context->space->fixed_area(world_rank) + Board::num_bytes(context->size)
                           : context->space->at(world_rank, group.mailboxes[static_cast<size_t>(member)]);
  return reinterpret_cast<Mailbox*>(mailbox);
}

std::unique_ptr<Link> Communicator::Impl::make_link(int peer) {
  if (peer == group.rank) return make_loopback_link();
  const int world_rank = group.world_ranks[static_cast<size_t>(peer)];
  Mailbox* theirs = mailbox_of(peer);
  if (theirs == nullptr) return context->make_remote_link(world_rank, group.id);
  RingEnds ends;
  ends.space = context->space.get();
  ends.own_mailbox = mailbox_of(group.rank);
  ends.peer_mailbox = theirs;
  ends.own_group_rank = group.rank;
  ends.peer_group_rank = peer;
  ends.peer_world_rank = world_rank;
  ends.capacity = ring_capacity(size());
  ends.retired = &retired_memory;
  return make_ring_link(ends);
}

Waiter Communicator::Impl::waiter_until(Clock::time_point deadline, bool background, const Lookout* lookout) const {
  // In the background others need the core more; where cores are scarce, the peer does.
  const bool spin = !background && !context->cores_are_scarce;
  return Waiter(deadline, *context->control, closing, spin ? kSpins : 0, background ? 0 : kYields, lookout);
}

Messenger Communicator::Impl::messenger(const BoardCollectives::Call& call) {
  FrameHeader header;
  header.fingerprint = call.fingerprint;
  header.digest = call.digest;
  return Messenger(*endpoint, arena, call.waiter, header);
}

void Communicator::Impl::check_usable() {
  if (is_broken.load(std::memory_order_acquire)) [[unlikely]] {
    std::lock_guard lock(broken_mutex);
    throw CommError(*broken);
  }
  if (const Failure* failure = context->control->failure()) [[unlikely]]
    break_with(failure->message, failure->culprit, false);
}

void Communicator::Impl::refuse(const OperationDigest& digest, Clock::time_point start) {
  if (!is_broken.load(std::memory_order_acquire)) {
    recorder.begin(digest, start);
    recorder.end(start, true);
  }
  check_usable();
}

void Communicator::Impl::begin(const OperationDigest& digest, Clock::time_point start) {
  RankProgress& progress = context->control->progress();
  progress.group.store(group.id, std::memory_order_relaxed);
  progress.sequence.store(digest.sequence, std::memory_order_relaxed);
  progress.operation.store(static_cast<uint32_t>(digest.kind), std::memory_order_relaxed);
  recorder.begin(digest, start);
  fault_point("comm.begin");
}

void Communicator::Impl::end() {
  recorder.end(Clock::now());
  context->control->progress().operation.store(0, std::memory_order_relaxed);
}

Where Communicator::Impl::where() const {
  Where where{.rank = context->rank};
  const uint64_t step = context->control->progress().step.load(std::memory_order_relaxed);
  if (step > 0) where.step = static_cast<int64_t>(step);
  return where;
}

void Communicator::Impl::break_with(const std::string& message, int culprit, bool report) {
  if (report) context->control->report({culprit, message});
  const CommError error(message, culprit, where());
  {
    std::lock_guard lock(broken_mutex);
    if (!broken) broken = error;
    is_broken.store(true, std::memory_order_release);
  }
  endpoint->abandon();
  if (gpu) gpu->abort();
  dump_recorder(error);
  throw error;
}

void Communicator::Impl::break_with_lost(int peer, const std::string& reason, const OperationDigest& digest) {
  // The control plane usually knows better why: a rank that died closes its data connections first.
  for (int i = 0; i < 200 && context->control->failure() == nullptr; ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  if (const Failure* failure = context->control->failure()) break_with(failure->message, failure->culprit, false);
  break_with(fmt::format("{} lost its connection to {} in {} of group {}: {}", context->describe(context->rank),
                         context->describe(peer), describe(digest), group.name, reason),
             peer, true);
}

void Communicator::Impl::record_failed_message(const OperationDigest& digest, Clock::time_point start) {
  recorder.begin(digest, start);
  recorder.end(Clock::now(), true);
}

void Communicator::Impl::fail(const OperationDigest& digest, Clock::time_point start) {
  const std::string here = context->describe(context->rank);
  if (digest.sequence == 0) record_failed_message(digest, start);
  try {
    throw;
  } catch (const JobFailed& job) {
    break_with(job.failure->message, job.failure->culprit, false);
  } catch (const WaitCancelled&) {
    // Its peers in a collective would wait for it in vain.
    const bool collective = digest.sequence != 0;
    break_with(fmt::format("{} closed group {} while {} was under way", here, group.name, describe(digest)),
               collective ? context->rank : -1, collective);
  } catch (const OperationMismatch& mismatch) {
    int culprit = -1;
    const bool told = mismatch.mine.kind != OperationKind::kNone;
    const std::string message = describe_mismatch(told ? mismatch.mine : digest, mismatch, culprit);
    break_with(message, culprit, true);
  } catch (const WaitTimedOut&) {
    int culprit = -1;
    const std::string message = describe_timeout(digest, start, culprit);
    break_with(message, culprit, true);
  } catch (const LinkBroken& link) {
    break_with_lost(link.peer, link.reason, digest);
  } catch (const PeerUnreachable& unreachable) {
    break_with_lost(unreachable.peer(), unreachable.what(), digest);
  } catch (const CommError& error) {
    // Of a group that this operation works through; it has told the others.
    break_with(error.what(), error.culprit(), false);
  } catch (const std::exception& error) {
    // This rank cannot go on; the others must not wait for it.
    context->control->report({context->rank, fmt::format("{} failed in {} of group {}: {}", here, describe(digest),
                                                         group.name, error.what())});
    {
      std::lock_guard lock(broken_mutex);
      if (!broken) broken = CommError(error.what(), context->rank, where());
      is_broken.store(true, std::memory_order_release);
    }
    if (gpu) gpu->abort();
    dump_recorder(*broken);
    throw;
  }
}

std::string Communicator::Impl::describe_mismatch(const OperationDigest& mine, const OperationMismatch& mismatch,
                                                  int& culprit) const {
  // With three or more the odd one out is at fault; with two nobody can tell.
  int other = mismatch.peer;
  OperationDigest theirs = mismatch.theirs;
  bool i_am_odd = false;
  if (board && size() > 2) {
    Board::Votes votes = board->votes(other);
    for (int i = 0; i < 20 && votes.late > 0; ++i) {  // for a better word the others get a moment
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
      votes = board->votes(other);
    }
    if (votes.with_me != votes.with_other)
      culprit = votes.with_me > votes.with_other ? group.world_ranks[static_cast<size_t>(other)] : context->rank;
    i_am_odd = culprit == context->rank;
  }
  return fmt::format("ranks disagree about operation {} of group {}: {} is in {}, but {} is in {}{}{}", mine.sequence,
                     group.name, context->describe(context->rank), describe(mine),
                     context->describe(group.world_ranks[static_cast<size_t>(other)]), describe(theirs),
                     theirs == mine ? " with other counts" : "",
                     culprit < 0 ? ""
                     : i_am_odd  ? fmt::format(" like most others: rank {} is the odd one", culprit)
                                 : fmt::format(": rank {} is the odd one", culprit));
}

std::string Communicator::Impl::describe_timeout(const OperationDigest& digest, Clock::time_point start, int& culprit) {
  const double seconds = std::chrono::duration<double>(Clock::now() - start).count();
  std::string text = fmt::format("{} gave up {} of group {} after {:.1f} s", context->describe(context->rank),
                                 describe(digest), group.name, seconds);
  if (const uint64_t step = context->control->progress().step.load()) text += fmt::format(", in step {}", step);

  std::vector<int> absent;  // world ranks
  if (board) {
    std::vector<int> late = board->behind();
    if (late.empty()) late = board->missing();
    for (const int member : late) absent.push_back(group.world_ranks[static_cast<size_t>(member)]);
  }
  std::vector<RankStatus> statuses;
  try {
    statuses = context->control->survey(Deadline::after(std::chrono::seconds(1)));
  } catch (const std::exception&) {
    // Without the coordinator's word the message says what is known here.
  }
  // A heartbeat from before this operation says nothing about it.
  std::erase_if(statuses, [&](const RankStatus& status) { return status.seconds_since_heartbeat > seconds; });
  constexpr double kTwoHeartbeats = 1.2;  // sooner, most of what the coordinator has heard is of the time before
  if (absent.empty() && seconds > kTwoHeartbeats) {
    for (const RankStatus& status : statuses) {
      const bool member =
          std::find(group.world_ranks.begin(), group.world_ranks.end(), status.rank) != group.world_ranks.end();
      const bool behind = status.group != group.id || status.sequence < digest.sequence || status.operation == 0;
      if (member && behind && status.rank != context->rank) absent.push_back(status.rank);
    }
  }
  if (absent.empty()) {
    text += ": the data does not arrive";
    const std::vector<int> silent = endpoint->awaited();
    for (size_t i = 0; i < std::min<size_t>(silent.size(), 8); ++i) {
      text += (i == 0 ? " from " : ", ") + context->describe(group.world_ranks[static_cast<size_t>(silent[i])]);
    }
    return text;
  }
  if (absent.size() == 1) culprit = absent.front();
  text += absent.size() == 1 ? ": it waited for " : ": it waited for these ranks: ";
  for (size_t i = 0; i < std::min<size_t>(absent.size(), 8); ++i) {
    if (i > 0) text += ", ";
    text += context->describe(absent[i]);
    for (const RankStatus& status : statuses) {
      if (status.rank != absent[i]) continue;
      const auto kind = static_cast<OperationKind>(status.operation);
      text += status.operation == 0 ? fmt::format(", which is outside the library, {} operations done", status.sequence)
                                    : fmt::format(", which is in {} #{}", name_of(kind), status.sequence);
    }
  }
  if (absent.size() > 8) text += fmt::format(" and {} more", absent.size() - 8);
  return text;
}

void Communicator::Impl::dump_recorder(const CommError& error) const noexcept {
  const char* folder = std::getenv("TRIREME_FLIGHT_DIR");
  if (folder == nullptr || *folder == '\0') return;
  try {
    std::string message;
    for (const char c : std::string_view(error.what())) {
      if (c == '"' || c == '\\') message += '\\';
      message += static_cast<unsigned char>(c) < ' ' ? ' ' : c;
    }
    std::ofstream(fmt::format("{}/flight-rank{}-{}.json", folder, context->rank, group.id))
        << fmt::format("{{\"rank\":{},\"group\":\"{}\",\"culprit\":{},\"failure\":\"{}\",\"records\":", context->rank,
                       group.name, error.culprit(), message)
        << recorder.to_json() << "}\n";
  } catch (...) {
    // Diagnosis must not make things worse.
  }
}

Endpoint::Ticket Communicator::Impl::start_message(bool is_send, ConstData out, Data in, int peer, uint32_t tag) {
  FrameHeader header;
  header.lane = kMessageLane;
  header.tag = tag;
  header.digest.kind = OperationKind::kSend;
  header.digest.type = is_send ? out.type : in.type;
  header.digest.count = is_send ? out.count : in.count;
  header.digest.root = static_cast<int32_t>(tag);
  header.fingerprint = fingerprint(header.digest, group.id);
  if (is_unusable()) [[unlikely]]
    refuse(header.digest, Clock::now());
  try {
    return is_send ? endpoint->start_send(peer, header, bytes_of(out))
                   : endpoint->start_recv(peer, header, bytes_of(in));
  } catch (...) {
    fail(header.digest, Clock::now());
  }
}

void Communicator::Impl::wait_for(std::span<const Endpoint::Ticket> tickets, const OperationDigest& digest,
                                  const CallOptions& options) {
  const Clock::time_point start = Clock::now();
  try {
    endpoint->wait(tickets, waiter_until(start + timeout_of(options), false));
    endpoint->end_round(tickets);
  } catch (const WaitTimedOut&) {
    record_failed_message(digest, start);
    const auto late = std::find_if(tickets.begin(), tickets.end(), [](const Endpoint::Ticket& ticket) {
      return !ticket->done.load(std::memory_order_acquire);
    });
    const int peer = group.world_ranks[static_cast<size_t>((late == tickets.end() ? tickets.front() : *late)->peer)];
    break_with(fmt::format("{} gave up {} with {} in group {} after {:.1f} s: the other side did not take part",
                           context->describe(context->rank), describe(digest), context->describe(peer), group.name,
                           std::chrono::duration<double>(Clock::now() - start).count()),
               peer, true);
  } catch (...) {
    fail(digest, start);
  }
}

Handle Communicator::Impl::hand_over(Endpoint::Ticket ticket, const CallOptions& options) {
  auto state = std::make_shared<Handle::State>();
  state->ticket = ticket;
  state->timeout = timeout_of(options);
  state->what = {context, ticket->header.digest, group.world_ranks[static_cast<size_t>(ticket->peer)]};
  if (!ticket->done.load(std::memory_order_acquire)) {
    {
      std::lock_guard lock(messages_mutex);
      messages.emplace_back(std::move(ticket), state);
    }
    queue.nudge();
  }
  return Handle(std::move(state));
}

bool Communicator::Impl::pump() {
  std::exception_ptr error;
  try {
    const Waiter waiter = waiter_until(Clock::time_point::max(), true);
    waiter.check();
    endpoint->progress_or_sleep();
  } catch (...) {
    try {
      OperationDigest digest;
      {
        std::lock_guard lock(messages_mutex);
        if (!messages.empty()) digest = messages.front().first->header.digest;
      }
      fail(digest, Clock::now());
    } catch (...) {
      error = std::current_exception();
    }
  }
  std::vector<std::shared_ptr<Handle::State>> ended;
  bool more = false;
  {
    std::lock_guard lock(messages_mutex);
    std::erase_if(messages, [&](auto& message) {
      if (!error && !message.first->done.load(std::memory_order_acquire)) return false;
      ended.push_back(message.second);
      return true;
    });
    more = !messages.empty();
  }
  for (const auto& state : ended) {
    const bool done = state->ticket->done.load(std::memory_order_acquire);
    state->finish(done ? nullptr : error);
  }
  return more;
}

Tuner::Situation Communicator::Impl::situation(bool ordered) const {
  const Topology hosts = context->hosts.of_group(group.world_ranks);
  Tuner::Situation situation;
  situation.ranks = size();
  situation.one_host = board != nullptr;
  situation.ranks_per_host = 1;
  for (int r = 0; r < size(); ++r) situation.ranks_per_host = std::max(situation.ranks_per_host, hosts.local_size(r));
  situation.hosts_aligned = hosts.is_aligned();
  situation.ordered = ordered;
  return situation;
}

Algorithm Communicator::Impl::algorithm_for(size_t num_bytes, const CallOptions& options) const {
  if (options.algorithm == Algorithm::kAuto) {
    // The usual case is decided without looking further.
    if (board && size() <= 64) return context->tuner.choose_on_one_host(size(), options.ordered);
    return context->tuner.choose(num_bytes, situation(options.ordered));
  }
  const Tuner::Situation here = situation(options.ordered);
  if (!context->tuner.possible(options.algorithm, here)) {
    if (options.algorithm == Algorithm::kInPlace) {
      throw UsageError(fmt::format("in-place all-reduce needs shared memory, but group {} spans {} hosts", group.name,
                                   context->hosts.of_group(group.world_ranks).num_hosts()),
                       "use two-level or auto");
    }
    throw UsageError(fmt::format("{} adds in an order of its own for {} ranks, but this call promises the fixed order",
                                 name_of(options.algorithm), size()),
                     "set CallOptions::ordered to false, or choose ordered, butterfly or auto");
  }
  return options.algorithm;
}

}  // namespace trireme
