#include "trireme/comm/transport/socket.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <random>
#include <thread>

#include "trireme/base/error.h"

namespace trireme {
namespace {

using std::chrono::milliseconds;

struct RawAddress {
  sockaddr_storage storage{};
  socklen_t size = 0;
  sockaddr* get() { return reinterpret_cast<sockaddr*>(&storage); }
  const sockaddr* get() const { return reinterpret_cast<const sockaddr*>(&storage); }
};

/// A literal only. False for names: the serving side must never wait for a name server.
bool parse_literal(const std::string& host, uint16_t port, RawAddress& out) {
  addrinfo hints{};
  hints.ai_family = AF_UNSPEC;
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_NUMERICHOST | AI_NUMERICSERV;
  addrinfo* found = nullptr;
  if (host.empty() || ::getaddrinfo(host.c_str(), std::to_string(port).c_str(), &hints, &found) != 0) return false;
  out.size = found->ai_addrlen;
  std::copy_n(reinterpret_cast<const char*>(found->ai_addr), out.size, reinterpret_cast<char*>(&out.storage));
  ::freeaddrinfo(found);
  return true;
}

RawAddress require_literal(const std::string& host, uint16_t port) {
  RawAddress raw;
  if (!parse_literal(host, port, raw)) {
    throw UsageError("\"" + host + "\" is not a numeric address", "Use a literal such as 127.0.0.1 or ::1.");
  }
  return raw;
}

std::string host_of(const sockaddr* address, socklen_t size) {
  char host[NI_MAXHOST];
  if (::getnameinfo(address, size, host, sizeof host, nullptr, 0, NI_NUMERICHOST) != 0) return "?";
  return host;
}

SocketAddress to_socket_address(const RawAddress& raw) {
  const uint16_t port = raw.storage.ss_family == AF_INET6
                            ? reinterpret_cast<const sockaddr_in6*>(&raw.storage)->sin6_port
                            : reinterpret_cast<const sockaddr_in*>(&raw.storage)->sin_port;
  return {host_of(raw.get(), raw.size), ntohs(port)};
}

/// False at the deadline.
bool wait_for(int fd, short events, Deadline deadline) {
  for (;;) {
    pollfd p{fd, events, 0};
    const int n = ::poll(&p, 1, deadline.left_ms(1'000'000));
    if (n > 0) return true;
    if (n < 0 && errno != EINTR) throw SystemError("wait for a socket", errno);
    if (deadline.expired()) return false;
  }
}

std::string cure_for_bind(const SocketAddress& address, int error_number) {
  if (error_number == EADDRINUSE) {
    return "Another process listens there. Choose another port (TRIREME_MASTER or MASTER_PORT), or end that process: "
           "ss -ltnp 'sport = :" +
           std::to_string(address.port) + "'";
  }
  if (error_number == EADDRNOTAVAIL) {
    return "No interface of this machine has that address. Set TRIREME_BIND to one that has (ip addr).";
  }
  if (error_number == EACCES) return "Ports below 1024 are for root. Choose another one.";
  return {};
}

struct Lookup {
  std::mutex mutex;
  std::condition_variable done;
  bool finished = false;
  int status = 0;
  std::vector<std::string> found;
};

void look_up(const std::string& host, Lookup& lookup) {
  addrinfo hints{};
  hints.ai_family = AF_UNSPEC;
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* list = nullptr;
  const int status = ::getaddrinfo(host.c_str(), nullptr, &hints, &list);
  std::vector<std::string> found;
  for (const addrinfo* a = status == 0 ? list : nullptr; a != nullptr; a = a->ai_next) {
    found.push_back(host_of(a->ai_addr, a->ai_addrlen));
  }
  if (status == 0) ::freeaddrinfo(list);
  const std::lock_guard lock(lookup.mutex);
  lookup.status = status;
  lookup.found = std::move(found);
  lookup.finished = true;
  lookup.done.notify_all();
}

SocketAddress name_of(const Socket& socket, int (*ask)(int, sockaddr*, socklen_t*), const char* doing) {
  RawAddress raw;
  raw.size = sizeof raw.storage;
  if (ask(socket.fd(), raw.get(), &raw.size) != 0) throw SystemError(doing, errno);
  return to_socket_address(raw);
}

}  // namespace

Socket& Socket::operator=(Socket&& other) noexcept {
  if (this != &other) {
    if (fd_ >= 0) ::close(fd_);
    fd_ = std::exchange(other.fd_, -1);
  }
  return *this;
}

Socket::~Socket() {
  if (fd_ >= 0) ::close(fd_);
}

std::string to_string(const SocketAddress& address) {
  const bool v6 = address.host.find(':') != std::string::npos;
  return (v6 ? "[" + address.host + "]" : address.host) + ":" + std::to_string(address.port);
}

bool is_numeric(const std::string& host) {
  RawAddress raw;
  return parse_literal(host, 0, raw);
}

bool is_loopback(const std::string& host) {
  if (host == "localhost") return true;
  RawAddress raw;
  if (!parse_literal(host, 0, raw)) return false;
  if (raw.storage.ss_family == AF_INET) {
    return ntohl(reinterpret_cast<const sockaddr_in*>(&raw.storage)->sin_addr.s_addr) >> 24 == 127;
  }
  const in6_addr& v6 = reinterpret_cast<const sockaddr_in6*>(&raw.storage)->sin6_addr;
  return IN6_IS_ADDR_LOOPBACK(&v6) || (IN6_IS_ADDR_V4MAPPED(&v6) && v6.s6_addr[12] == 127);
}

bool is_wildcard(const std::string& host) {
  RawAddress raw;
  if (!parse_literal(host, 0, raw)) return false;
  if (raw.storage.ss_family == AF_INET) {
    return reinterpret_cast<const sockaddr_in*>(&raw.storage)->sin_addr.s_addr == INADDR_ANY;
  }
  return IN6_IS_ADDR_UNSPECIFIED(&reinterpret_cast<const sockaddr_in6*>(&raw.storage)->sin6_addr);
}

std::vector<std::string> resolve(const std::string& host, Deadline deadline) {
  if (host == "localhost") return {"127.0.0.1"};
  if (is_numeric(host)) return {host};
  // getaddrinfo() takes no deadline, so a slow name server is waited for on a thread that may outlive this call.
  auto lookup = std::make_shared<Lookup>();
  std::thread([lookup, host] {
    try {
      look_up(host, *lookup);
    } catch (...) {  // out of memory: the waiting side sees its deadline
    }
  }).detach();
  std::unique_lock lock(lookup->mutex);
  if (!lookup->done.wait_until(lock, deadline.at(), [&] { return lookup->finished; })) {
    throw Error("the name server did not answer for \"" + host + "\" in time", "Use a numeric address.");
  }
  if (lookup->found.empty()) {
    throw Error("cannot find the address of \"" + host + "\": " + ::gai_strerror(lookup->status),
                "Use a numeric address, or enter the name in /etc/hosts.");
  }
  return lookup->found;
}

Socket listen_on(const std::string& address, uint16_t port, int backlog) {
  const RawAddress raw = require_literal(address, port);
  const SocketAddress named{address, port};
  Socket socket(::socket(raw.storage.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (!socket.valid()) throw SystemError("make a socket for " + to_string(named), errno);
  const int on = 1;
  ::setsockopt(socket.fd(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  if (::bind(socket.fd(), raw.get(), raw.size) != 0 || ::listen(socket.fd(), backlog) != 0) {
    const int error_number = errno;
    throw SystemError("listen on " + to_string(named), error_number, cure_for_bind(named, error_number));
  }
  return socket;
}

SocketAddress local_address(const Socket& socket) {
  return name_of(
      socket, [](int fd, sockaddr* a, socklen_t* n) { return ::getsockname(fd, a, n); }, "name a socket");
}

SocketAddress peer_address(const Socket& socket) {
  return name_of(
      socket, [](int fd, sockaddr* a, socklen_t* n) { return ::getpeername(fd, a, n); }, "name a socket's peer");
}

void set_no_delay(const Socket& socket) {
  const int on = 1;
  ::setsockopt(socket.fd(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
}

Socket connect_once(const SocketAddress& address, Deadline deadline) {
  const RawAddress raw = require_literal(address.host, address.port);
  const std::string doing = "connect to " + to_string(address);
  Socket socket(::socket(raw.storage.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (!socket.valid()) throw SystemError(doing, errno);
  set_no_delay(socket);
  if (::connect(socket.fd(), raw.get(), raw.size) != 0) {
    if (errno != EINPROGRESS && errno != EINTR) throw SystemError(doing, errno);
    if (!wait_for(socket.fd(), POLLOUT, deadline)) throw SystemError(doing, ETIMEDOUT);
    int error_number = 0;
    socklen_t size = sizeof error_number;
    ::getsockopt(socket.fd(), SOL_SOCKET, SO_ERROR, &error_number, &size);
    if (error_number != 0) throw SystemError(doing, error_number);
  }
  // A connection to a free port of this machine's own ephemeral range can meet itself.
  const SocketAddress local = local_address(socket);
  if (local.port == address.port && local.host == address.host) throw SystemError(doing, ECONNREFUSED);
  return socket;
}

Socket connect_to(const std::string& host, uint16_t port, Deadline deadline) {
  std::minstd_rand random(std::random_device{}());
  milliseconds pause{2};
  for (;;) {
    for (const std::string& address : resolve(host, deadline)) {
      try {
        return connect_once({address, port}, deadline);
      } catch (const SystemError& error) {
        if (error.error_number() == ETIMEDOUT && deadline.expired()) throw;
        if (deadline.left() <= pause) {
          throw SystemError("connect to " + to_string({host, port}), error.error_number(),
                            "Nothing accepts connections there: is the other side running, and is it reachable?");
        }
      }
    }
    const Clock::duration jittered = pause + milliseconds(random() % (pause.count() + 1));
    std::this_thread::sleep_for(std::min(jittered, deadline.left()));
    pause = std::min(pause * 2, milliseconds(100));
  }
}

void send_all(const Socket& socket, std::span<const std::byte> data, Deadline deadline) {
  while (!data.empty()) {
    const ssize_t n = ::send(socket.fd(), data.data(), data.size(), MSG_NOSIGNAL);
    if (n >= 0) {
      data = data.subspan(static_cast<size_t>(n));
    } else if (errno == EAGAIN) {
      if (!wait_for(socket.fd(), POLLOUT, deadline)) throw SystemError("send", ETIMEDOUT);
    } else if (errno != EINTR) {
      throw SystemError("send", errno);
    }
  }
}

void recv_all(const Socket& socket, std::span<std::byte> data, Deadline deadline) {
  while (!data.empty()) {
    const ssize_t n = ::recv(socket.fd(), data.data(), data.size(), 0);
    if (n > 0) {
      data = data.subspan(static_cast<size_t>(n));
    } else if (n == 0) {
      throw SystemError("receive", ECONNRESET);
    } else if (errno == EAGAIN) {
      if (!wait_for(socket.fd(), POLLIN, deadline)) throw SystemError("receive", ETIMEDOUT);
    } else if (errno != EINTR) {
      throw SystemError("receive", errno);
    }
  }
}

}  // namespace trireme
