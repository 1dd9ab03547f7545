#include "trireme/server/dialer.h"

#include <cerrno>

namespace trireme::server {

namespace {

WireFrame receive_small_frame(const Socket& socket, Deadline deadline) {
  std::array<std::byte, kHeaderBytes> bytes;
  recv_all(socket, bytes, deadline);
  const WireHeader header = decode_wire_header(bytes);
  if (header.data_bytes != 0) throw control::ProtocolError("an answer with data, where none can be");
  WireFrame frame{header.type, header.request, std::vector<std::byte>(header.meta_bytes), {}};
  recv_all(socket, frame.meta, deadline);
  verify(bytes, header, frame.meta);
  return frame;
}

}  // namespace

WireFrame receive_answer(const Socket& socket, Deadline deadline) {
  while (true) {
    WireFrame frame = receive_small_frame(socket, deadline);
    if (frame.type != Type::kPulse) return frame;
  }
}

void send_small_frame(const Socket& socket, Type type, std::span<const std::byte> meta, Deadline deadline) {
  WireHeader header;
  header.type = type;
  send_all(socket, encode(header, meta), deadline);
  send_all(socket, meta, deadline);
}

Dialer::~Dialer() {
  for (auto& [thread, done] : threads_) thread.join();
}

void Dialer::start(Call call) {
  std::erase_if(threads_, [](auto& entry) {
    if (!entry.second->load()) return false;
    entry.first.join();
    return true;
  });
  auto done = std::make_shared<std::atomic<bool>>(false);
  threads_.emplace_back(std::thread([this, call = std::move(call), done] {
                          CallResult result;
                          try {
                            result = dial(call);
                          } catch (const std::exception& error) {
                            result.reason = error.what();
                          }
                          result.number = call.number;
                          {
                            const std::lock_guard lock(mutex_);
                            results_.push_back(std::move(result));
                          }
                          poller_.ring();
                          done->store(true);
                        }),
                        done);
}

CallResult Dialer::dial(const Call& call) const {
  CallResult result;
  const Deadline deadline = Deadline::after(call.patience);
  try {
    Socket socket = connect_once(call.address, deadline);
    control::shake_hands(socket, credentials_, call.hello, deadline);
    send_small_frame(socket, call.type, call.meta, deadline);
    result.answer = receive_answer(socket, deadline);
    result.socket = std::move(socket);
  } catch (const control::Refused& refused) {
    result.refusal = refused.refusal();
    result.reason = refused.what();
  } catch (const SystemError& error) {
    result.refused_at_once = error.error_number() == ECONNREFUSED;
    result.reason = error.what();
  }
  return result;
}

std::vector<CallResult> Dialer::take() {
  const std::lock_guard lock(mutex_);
  return std::exchange(results_, {});
}

}  // namespace trireme::server
