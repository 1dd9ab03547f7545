#include "trireme/comm/control/control_join.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/socket.h>

#include <cerrno>
#include <random>

#include "trireme/comm/control/token.h"

namespace trireme::control {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr int kControlBacklog = 4096;
constexpr int kDataBacklog = 1024;

double in_seconds(Clock::duration time) { return std::chrono::duration<double>(time).count(); }

/// The descriptor stays open: a second job of this process can be served on it.
Socket adopt_listener(int fd) {
  int listening = 0;
  socklen_t size = sizeof listening;
  if (::getsockopt(fd, SOL_SOCKET, SO_ACCEPTCONN, &listening, &size) != 0 || listening == 0) {
    throw UsageError(fmt::format("TRIREME_LISTEN_FD={} is not a listening socket", fd),
                     "Leave it unset, or start the job with trireme launch.");
  }
  ::fcntl(fd, F_SETFD, FD_CLOEXEC);
  Socket listener(::fcntl(fd, F_DUPFD_CLOEXEC, 0));
  if (!listener.valid()) throw SystemError("take over the listening socket", errno);
  ::fcntl(listener.fd(), F_SETFL, ::fcntl(listener.fd(), F_GETFL) | O_NONBLOCK);
  ::listen(listener.fd(), kControlBacklog);
  return listener;
}

Socket open_listener(const LaunchEnvironment& environment, Deadline deadline) {
  if (environment.listen_fd >= 0) return adopt_listener(environment.listen_fd);
  const std::string address =
      resolve(environment.bind_address.empty() ? environment.master_address : environment.bind_address, deadline)[0];
  if (is_loopback(address) && !is_loopback(environment.master_address) && environment.local_size < environment.size) {
    throw UsageError(fmt::format("rank 0 takes its own name {} for the loopback address {}, where no other host "
                                 "reaches it",
                                 environment.master_address, address),
                     "Set MASTER_ADDR to a numeric address of rank 0's host, or TRIREME_BIND on rank 0 to it.");
  }
  // All but the last may be held by others, such as torchrun's own store.
  for (size_t i = 0; i + 1 < environment.master_ports.size(); ++i) {
    try {
      return listen_on(address, environment.master_ports[i], kControlBacklog);
    } catch (const SystemError& error) {
      if (error.error_number() != EADDRINUSE) throw;
    }
  }
  return listen_on(address, environment.master_ports.back(), kControlBacklog);
}

/// Where rank 0 reaches its own coordinator.
SocketAddress own_address(const LaunchEnvironment& environment, const SocketAddress& listening, Deadline deadline) {
  if (!is_wildcard(listening.host)) return listening;
  return {resolve(environment.master_address, deadline)[0], listening.port};
}

/// Tries the places where rank 0 may be, again and again, until one lets us in.
class Search {
 public:
  Search(const LaunchEnvironment& environment, Deadline deadline, Clock::duration timeout)
      : environment_(environment), deadline_(deadline), timeout_(timeout) {}

  /// Only there, with that token: rank 0, which knows.
  void only(const SocketAddress& address, std::string token) {
    only_ = address;
    token_ = std::move(token);
  }

  /// The connection, the token that opened it left in `credentials`.
  Socket run(Credentials& credentials) {
    std::minstd_rand random(std::random_device{}());
    milliseconds pause{2};
    for (;;) {
      for (const SocketAddress& address : places()) {
        if (std::optional<Socket> socket = try_one(address, credentials)) return std::move(*socket);
      }
      if (deadline_.left() <= pause) give_up();
      const Clock::duration jittered = pause + milliseconds(random() % (pause.count() + 1));
      std::this_thread::sleep_for(std::min(jittered, deadline_.left()));
      pause = std::min(pause * 2, milliseconds(100));
    }
  }

 private:
  bool several_ports() const { return !only_ && environment_.master_ports.size() > 1; }

  std::vector<SocketAddress> places() {
    if (only_) return {*only_};
    try {
      if (hosts_.empty()) hosts_ = resolve(environment_.master_address, deadline_);
    } catch (const Error& error) {  // the name may not be known yet
      problem_ = error.what();
    }
    std::vector<SocketAddress> result;
    for (const std::string& host : hosts_) {
      for (uint16_t port : environment_.master_ports) result.push_back({host, port});
    }
    return result;
  }

  std::optional<Socket> try_one(const SocketAddress& address, Credentials& credentials) {
    const bool by_file = !only_ && environment_.token.empty();
    credentials.token = only_ ? token_ : environment_.token;
    if (by_file) {
      std::optional<std::string> token = find_token(environment_.job, address.port);
      if (!token) {
        if (problem_.empty()) problem_ = "it has not left a token for its ranks";
        return std::nullopt;
      }
      credentials.token = std::move(*token);
    }
    Hello hello;
    hello.rank = static_cast<uint32_t>(environment_.rank);
    hello.size = static_cast<uint32_t>(environment_.size);
    // Something else may hold a port and say nothing; with several to try, less time is wasted on each.
    const Deadline attempt(std::min(deadline_.at(), Clock::now() + (several_ports() ? seconds(2) : seconds(5))));
    try {
      Socket socket = connect_once(address, attempt);
      shake_hands(socket, credentials, hello, attempt);
      return socket;
    } catch (const Refused& refused) {
      const RefusalCode code = refused.refusal().code;
      const bool may_change = code == RefusalCode::kNotNow || (code == RefusalCode::kWrongToken && by_file) ||
                              (code == RefusalCode::kOtherJob && several_ports());
      if (!may_change) throw_refusal(refused.refusal(), "rank 0 at " + to_string(address), environment_.rank);
      telling_ = true;
      problem_ = code == RefusalCode::kOtherJob     ? "another job answers at " + to_string(address)
                 : code == RefusalCode::kWrongToken ? "it refused the token that was left in a file"
                                                    : "the job before this one has not ended";
    } catch (const ProtocolError& error) {
      problem_ = to_string(address) + ": " + error.what();
      telling_ = true;
    } catch (const Error& error) {
      if (!telling_) problem_ = error.what();
    }
    return std::nullopt;
  }

  [[noreturn]] void give_up() const {
    std::vector<std::string> ports;
    for (uint16_t port : environment_.master_ports) ports.push_back(std::to_string(port));
    throw Error(fmt::format("rank {} of {} could not join within {:.1f} s: rank 0 did not answer at {} port {} ({})",
                            environment_.rank, environment_.size, in_seconds(timeout_), environment_.master_address,
                            fmt::join(ports, ", "), problem_),
                "Is rank 0 running, and can its host be reached from here? For a slow start, give more time to join.");
  }

  const LaunchEnvironment& environment_;
  Deadline deadline_;
  Clock::duration timeout_;
  std::optional<SocketAddress> only_;
  std::string token_;
  std::vector<std::string> hosts_;
  std::string problem_;
  bool telling_ = false;  ///< somebody did answer, which says more than a silence after it
};

/// Says goodbye on the way out, so that one who gives up is not taken for dead.
void send_goodbye(const Socket& socket) noexcept {
  try {
    send_all(socket, *encode(FrameType::kGoodbye), Deadline::after(milliseconds(100)));
    ::shutdown(socket.fd(), SHUT_WR);
    std::byte rest;  // until the coordinator hangs up: a reset could overtake the goodbye
    for (const Deadline deadline = Deadline::after(milliseconds(200)); !deadline.expired();) {
      recv_all(socket, std::span(&rest, 1), deadline);
    }
  } catch (...) {
  }
}

/// Where rank 0 is, for messages; its connection may be gone already.
std::string place_of_rank_0(const Socket& socket, const LaunchEnvironment& environment) {
  try {
    return to_string(peer_address(socket));
  } catch (const SystemError&) {
    return environment.master_address;
  }
}

std::vector<Member> wait_for_table(const Socket& socket, const LaunchEnvironment& environment, Deadline deadline,
                                   Clock::duration timeout) {
  const std::string server = place_of_rank_0(socket, environment);
  std::optional<Waiting> missing;
  TableReader table;
  try {
    for (;;) {
      const Frame frame = receive_frame(socket, kHeaderBytes + kMaxPayloadBytes, deadline);
      switch (frame.type) {
        case FrameType::kWaiting:
          missing = decode_waiting(frame.payload);
          break;
        case FrameType::kTable:
          if (table.add(frame.payload)) return table.members();
          break;
        case FrameType::kRefusal:
          throw Refused(decode_refusal(frame.payload));
        case FrameType::kFailure:
          throw Error(
              fmt::format("rank {} could not join: {}", environment.rank, decode_failure(frame.payload).message),
              "Start the job again.");
        case FrameType::kPulse:
          break;
        default:
          throw ProtocolError("the coordinator sent a frame out of place");
      }
    }
  } catch (const SystemError& error) {
    if (error.error_number() != ETIMEDOUT) {
      throw Error(fmt::format("rank {} could not join: rank 0 at {} died while the ranks were joining ({})",
                              environment.rank, server, error.what()),
                  "Look at the output of rank 0.");
    }
    send_goodbye(socket);
    throw Error(fmt::format("rank {} waited {:.1f} s for the others: {}", environment.rank, in_seconds(timeout),
                            missing ? describe_missing(*missing, environment.size) : "rank 0 stopped answering"),
                "Were they started, and can they reach rank 0? For a slow start, give more time to join.");
  }
}

}  // namespace

Joined join_job(const LaunchEnvironment& environment, Member self, const ControlOptions& options) {
  const Deadline deadline = Deadline::after(options.join_timeout);
  Joined joined;
  joined.rank = environment.rank;
  joined.credentials.job = sha256(environment.job);
  joined.credentials.token = environment.token;

  Search search(environment, deadline, options.join_timeout);
  std::optional<TokenFile> token_file;  // gone when this returns, however it does
  if (environment.rank == 0) {
    Socket listener = open_listener(environment, deadline);
    const SocketAddress listening = local_address(listener);
    if (environment.token.empty()) {
      token_file.emplace(TokenFile::publish(environment.job, listening.port));
      joined.credentials.token = token_file->token();
    }
    CoordinatorOptions serving;
    serving.size = environment.size;
    serving.credentials = joined.credentials;
    serving.control = options;
    joined.coordinator = std::make_unique<Coordinator>(std::move(listener), std::move(serving));
    search.only(own_address(environment, listening, deadline), joined.credentials.token);
  }

  for (;;) {
    joined.connection = search.run(joined.credentials);
    const std::string reached_from = local_address(joined.connection).host;
    joined.listener =
        listen_on(environment.bind_address.empty() ? reached_from : environment.bind_address, 0, kDataBacklog);
    const SocketAddress data = local_address(joined.listener);
    self.rank = environment.rank;
    self.address = is_wildcard(data.host) ? reached_from : data.host;
    self.port = data.port;
    const std::vector<std::byte> registration = encode_register(self);
    if (registration.size() > kHeaderBytes + kMaxPayloadBytes) {
      throw UsageError(fmt::format("a member's description of {} bytes is too large", registration.size()));
    }
    try {
      send_all(joined.connection, registration, deadline);
      joined.members = wait_for_table(joined.connection, environment, deadline, options.join_timeout);
      break;
    } catch (const Refused& refused) {
      if (refused.refusal().code != RefusalCode::kNotNow || deadline.left() < milliseconds(50)) {
        throw_refusal(refused.refusal(), "rank 0 at " + place_of_rank_0(joined.connection, environment),
                      environment.rank);
      }
      std::this_thread::sleep_for(milliseconds(20));
    }
  }
  if (joined.members.size() != static_cast<size_t>(environment.size)) {
    throw Error("the table of members has another size than the world");
  }
  return joined;
}

}  // namespace trireme::control
