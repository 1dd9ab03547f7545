// A TCP socket that closes itself, and the few calls that the project makes on one.
//
// All sockets are non-blocking and close-on-exec; all waits take a deadline.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "trireme/base/deadline.h"

namespace trireme {

class Socket {
 public:
  Socket() = default;
  explicit Socket(int fd) : fd_(fd) {}
  Socket(Socket&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  Socket& operator=(Socket&& other) noexcept;
  ~Socket();

  int fd() const { return fd_; }
  bool valid() const { return fd_ >= 0; }
  int release() { return std::exchange(fd_, -1); }

 private:
  int fd_ = -1;
};

struct SocketAddress {
  std::string host;  ///< numeric
  uint16_t port = 0;
};

/// "127.0.0.1:2900", "[::1]:2900".
std::string to_string(const SocketAddress& address);

/// Of the literal only, without a lookup; "localhost" counts as loopback.
bool is_numeric(const std::string& host);
bool is_loopback(const std::string& host);
bool is_wildcard(const std::string& host);

/// The numeric addresses of a name; a literal is returned as it is. Throws Error at the deadline or when unknown.
std::vector<std::string> resolve(const std::string& host, Deadline deadline);

/// Non-blocking, close-on-exec, SO_REUSEADDR. Port 0 takes a free one. Throws SystemError naming the address.
Socket listen_on(const std::string& address, uint16_t port, int backlog);
SocketAddress local_address(const Socket& socket);
SocketAddress peer_address(const Socket& socket);
void set_no_delay(const Socket& socket);

/// Non-blocking, TCP_NODELAY. Retries a refused connection until the deadline. `host` may be a name.
Socket connect_to(const std::string& host, uint16_t port, Deadline deadline);
/// One attempt to a numeric address: a refusal is thrown as SystemError at once.
Socket connect_once(const SocketAddress& address, Deadline deadline);

/// All bytes or an exception (SystemError; ETIMEDOUT at the deadline, ECONNRESET at the end of the stream).
void send_all(const Socket& socket, std::span<const std::byte> data, Deadline deadline);
void recv_all(const Socket& socket, std::span<std::byte> data, Deadline deadline);

}  // namespace trireme
