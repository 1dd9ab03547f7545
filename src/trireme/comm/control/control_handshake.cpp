#include "trireme/comm/control/control_handshake.h"

#include <fmt/format.h>

#include <algorithm>

namespace trireme::control {

Frame receive_frame(const Socket& socket, size_t max_bytes, Deadline deadline) {
  std::array<std::byte, kHeaderBytes> bytes;
  recv_all(socket, bytes, deadline);
  const FrameHeader header = decode_header(bytes);
  if (header.magic != kMagic) throw ProtocolError("what answers is no Trireme");
  // A refusal reads the same in every version, and says better than this side could what is wrong.
  if (header.version != kProtocolVersion && header.type != FrameType::kRefusal) {
    throw Refused({RefusalCode::kOtherProtocol,
                   fmt::format("it speaks protocol {}, this process {}", header.version, kProtocolVersion)});
  }
  if (header.payload_bytes > max_bytes - kHeaderBytes) throw ProtocolError("a control frame is too large");
  Frame frame{header.type, std::vector<std::byte>(header.payload_bytes)};
  recv_all(socket, frame.payload, deadline);
  return frame;
}

void shake_hands(const Socket& socket, const Credentials& credentials, Hello hello, Deadline deadline) {
  const Frame challenge = receive_frame(socket, kMaxHandshakeBytes, deadline);
  Digest server_nonce;
  if (challenge.type != FrameType::kChallenge || challenge.payload.size() != server_nonce.size()) {
    throw ProtocolError("what answers does not begin with a challenge");
  }
  std::ranges::copy(challenge.payload, server_nonce.begin());

  hello.job = credentials.job;
  fill_random(hello.nonce);
  hello.mac = mac_of(hello, server_nonce, credentials.token, "client");
  send_all(socket, encode(hello), deadline);

  const Frame answer = receive_frame(socket, kMaxHandshakeBytes, deadline);
  if (answer.type == FrameType::kRefusal) throw Refused(decode_refusal(answer.payload));
  Digest proof;
  if (answer.type != FrameType::kWelcome || answer.payload.size() != proof.size()) {
    throw ProtocolError("what answers sends neither welcome nor refusal");
  }
  std::ranges::copy(answer.payload, proof.begin());
  if (!equal_in_constant_time(proof, mac_of(hello, server_nonce, credentials.token, "server"))) {
    throw ProtocolError("what answers does not know the token of this job");
  }
}

void throw_refusal(const Refusal& refusal, const std::string& where, int rank) {
  const auto cause = [&](const char* what) {
    return fmt::format("{} refused rank {}: {}{}", where, rank, what,
                       refusal.text.empty() ? "" : " (" + refusal.text + ")");
  };
  switch (refusal.code) {
    case RefusalCode::kWrongToken:
      throw UsageError(cause("wrong token"), "Give all ranks the same TRIREME_TOKEN or TRIREME_TOKEN_FILE.");
    case RefusalCode::kOtherJob:
      throw UsageError(cause("it belongs to another job"),
                       "Another job uses that port. Choose another one (TRIREME_MASTER or MASTER_PORT) for this job.");
    case RefusalCode::kOtherProtocol:
    case RefusalCode::kOtherLibrary:
      throw UsageError(cause("it runs another version"), "Start all ranks with the same build of Trireme.");
    case RefusalCode::kRankOutside:
      throw UsageError(cause("the rank is outside the world"), "Ranks go from 0 to the world's size less one.");
    case RefusalCode::kSizeDiffers:
      throw UsageError(cause("the size of the world differs"), "Give all ranks the same world size.");
    case RefusalCode::kRankTaken:
      throw UsageError(cause("the rank is already taken"),
                       "Two processes were started with one rank: give each its own.");
    case RefusalCode::kChannelTaken:
      throw Error(cause("it already has a connection of that channel"));
    case RefusalCode::kWrongPeer:
      throw Error(cause("it is another rank than the one looked for"));
    case RefusalCode::kNotNow:
      throw Error(cause("it cannot be joined now"), "Wait until the job before this one has ended.");
  }
  throw Error(cause("for a reason that this version does not know"));
}

}  // namespace trireme::control
