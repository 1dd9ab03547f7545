#include "trireme/train/servers/push_codec.h"

#include <fmt/format.h>

#include <algorithm>

#include "trireme/base/error.h"

namespace trireme {
namespace {

std::string group_name(std::string_view key, size_t first) { return fmt::format("{} from {}", key, first); }

}  // namespace

void PushCodec::add(const server::KeyTable& table, size_t key, std::vector<std::string> tensors) {
  const server::Key& known = table.keys()[key];
  const auto [first, last] = table.pieces_of(static_cast<uint32_t>(key));
  for (uint32_t number = first; number < last; ++number) {
    const server::Piece& piece = table.pieces()[number];
    Packer packer{tensors, fmt::format("{}@{}", tensors[0], piece.first), piece.first, piece.count, known.count, {}};
    GroupLayout layout{group_name(known.name, piece.first), piece.count, {{packer.part, 0, 1, piece.count}}};
    packer.encoder = make_message_encoder(options_, std::move(layout), replica_, num_replicas_);
    packers_.emplace(std::pair(known.name, piece.first), std::move(packer));
  }
}

server::Codec PushCodec::codec(uint64_t first_step) {
  server::Codec codec;
  codec.id = kId;
  codec.encode = [this, first_step](const server::PushedPart& part, std::span<const float> gradient) {
    values_.assign(gradient.begin(), gradient.end());
    std::vector<uint8_t> message;
    packers_.at({std::string(part.key), part.first}).encoder->encode(values_, first_step + part.clock, message);
    const auto bytes = std::as_bytes(std::span(message));
    return std::vector<std::byte>(bytes.begin(), bytes.end());
  };
  codec.decode = [options = options_, first_step](const server::PushedPart& part, std::span<const std::byte> packed,
                                                  std::span<float> gradient) {
    std::fill(gradient.begin(), gradient.end(), 0.f);
    add_message(options, first_step + part.clock, {reinterpret_cast<const uint8_t*>(packed.data()), packed.size()},
                gradient);
  };
  return codec;
}

StatePieces PushCodec::save() const {
  StatePieces all;
  for (const auto& [place, packer] : packers_) {
    StatePieces own;
    packer.encoder->save(own);
    for (StatePiece& piece : own) {
      const std::string prefix = piece.name.substr(0, piece.name.size() - packer.part.size());
      all.push_back(
          {prefix + packer.tensors[0], piece.kind, packer.first + piece.first, packer.total, std::move(piece.values)});
    }
  }
  return all;
}

void PushCodec::load(const std::vector<StatePieces>& by_replica) {
  for (auto& [place, packer] : packers_) {
    std::vector<StatePieces> fitting(by_replica.size());
    for (size_t replica = 0; replica < by_replica.size(); ++replica) {
      for (const StatePiece& piece : by_replica[replica]) {
        const auto tensor = std::find_if(packer.tensors.begin(), packer.tensors.end(),
                                         [&](const std::string& name) { return piece.name.ends_with("/" + name); });
        if (tensor == packer.tensors.end()) continue;
        if (piece.total != packer.total) {
          throw Error(fmt::format("the saved state {} is of {} elements, but the tensor has {}", piece.name,
                                  piece.total, packer.total),
                      "it was saved for another model, or for another parallel.tp");
        }
        const size_t begin = std::max(piece.first, packer.first);
        const size_t end = std::min(piece.first + piece.values.size(), packer.first + packer.count);
        if (begin >= end) continue;
        const auto from = piece.values.begin() + static_cast<std::ptrdiff_t>(begin - piece.first);
        fitting[replica].push_back({piece.name.substr(0, piece.name.size() - tensor->size()) + packer.part,
                                    piece.kind,
                                    begin - packer.first,
                                    packer.count,
                                    {from, from + static_cast<std::ptrdiff_t>(end - begin)}});
      }
    }
    packer.encoder->load(fitting);
  }
}

}  // namespace trireme
