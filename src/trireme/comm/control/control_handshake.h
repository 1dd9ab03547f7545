// The connecting side of the handshake that opens every connection of a job.
#pragma once

#include "trireme/comm/control/control_protocol.h"
#include "trireme/comm/transport/socket.h"

namespace trireme::control {

/// What a process proves, and demands proof of.
struct Credentials {
  std::string token;
  Digest job{};
};

/// The other side answered, and said no.
class Refused : public Error {
 public:
  explicit Refused(Refusal refusal) : Error("refused: " + refusal.text), refusal_(std::move(refusal)) {}
  const Refusal& refusal() const { return refusal_; }

 private:
  Refusal refusal_;
};

/// One frame of at most `max_bytes` with its header. Reads not a byte beyond it. Throws SystemError, or ProtocolError
/// for anything but a frame.
Frame receive_frame(const Socket& socket, size_t max_bytes, Deadline deadline);

/// Proves who we are and checks the other side's proof. `hello` says purpose, rank, size, target and channel; the rest
/// is filled in here. Throws Refused, ProtocolError (not a Trireme, or it does not know the token), or SystemError.
void shake_hands(const Socket& socket, const Credentials& credentials, Hello hello, Deadline deadline);

/// The error that a user sees: who refused whom, why, and what to do. `where` reads like "rank 0 at 10.0.0.1:2900".
[[noreturn]] void throw_refusal(const Refusal& refusal, const std::string& where, int rank);

}  // namespace trireme::control
