// Links that keep message boundaries, as MPI does: a payload was sent twice when it took a while, and a message that
// was asked for while it arrived was written to memory that had gone.
#include <gtest/gtest.h>

#include <deque>
#include <random>

#include "support/quiet_control.h"
#include "trireme/comm/transport/endpoint.h"

namespace trireme {
namespace {

using Messages = std::deque<std::vector<std::byte>>;

/// Every call starts something that a later call finds done.
class MessageLink : public Link {
 public:
  MessageLink(Messages& out, Messages& in) : out_(&out), in_(&in) {}

  size_t write_some(ConstBytes data) override {
    if (!sending_) {
      sending_ = true;
      sent_ = data;
      return 0;
    }
    sending_ = false;
    out_->emplace_back(sent_.begin(), sent_.end());
    return sent_.size();
  }
  size_t read_some(Bytes data) override {
    if (!receiving_) {
      receiving_ = true;
      wanted_ = data;
      return 0;
    }
    if (in_->empty()) return 0;
    receiving_ = false;
    EXPECT_EQ(in_->front().size(), wanted_.size()) << "truncated";
    std::copy(in_->front().begin(), in_->front().end(), wanted_.begin());
    in_->pop_front();
    return wanted_.size();
  }
  bool keeps_messages() const override { return true; }

 private:
  Messages *out_, *in_;
  bool sending_ = false, receiving_ = false;
  ConstBytes sent_;
  Bytes wanted_;
};

class MessageLinkTest : public testing::Test {
 protected:
  Messages there, back;
  Endpoint sender{0, 2, [this](int) { return std::make_unique<MessageLink>(there, back); }, nullptr};
  Endpoint receiver{1, 2, [this](int) { return std::make_unique<MessageLink>(back, there); }, nullptr};

  static FrameHeader header(uint32_t tag) {
    FrameHeader header;
    header.lane = 64;
    header.tag = tag;
    return header;
  }
};

TEST_F(MessageLinkTest, APayloadGoesOnce) {
  const std::vector<std::byte> out(1000, std::byte{7});
  const auto first = sender.start_send(1, header(1), out);
  const auto second = sender.start_send(1, header(2), out);
  for (int i = 0; i < 20; ++i) sender.progress();
  EXPECT_TRUE(first->done && second->done);
  ASSERT_EQ(there.size(), 4u);
  EXPECT_EQ(there[1], out);
  EXPECT_EQ(there[2].size(), sizeof(FrameHeader));
}

TEST_F(MessageLinkTest, AMessageThatIsAskedForWhileItArrivesIsWhole) {
  const std::vector<std::byte> early(5000, std::byte{1}), late(100, std::byte{2});
  const auto first = sender.start_send(1, header(1), early);
  const auto second = sender.start_send(1, header(2), late);
  std::vector<std::byte> got_late(100), got_early(5000);
  const auto wants_late = receiver.start_recv(0, header(2), got_late);
  // The header of the early one has come, and its payload is expected in memory aside.
  while (there.size() < 2) sender.progress();
  auto payload = std::move(there.back());
  there.pop_back();
  for (int i = 0; i < 5; ++i) receiver.progress();
  const auto wants_early = receiver.start_recv(0, header(1), got_early);
  there.push_back(std::move(payload));
  for (int i = 0; i < 50; ++i) {
    sender.progress();
    receiver.progress();
  }
  EXPECT_TRUE(wants_early->done && wants_late->done && first->done && second->done);
  EXPECT_EQ(got_early, early);
  EXPECT_EQ(got_late, late);
}

}  // namespace
}  // namespace trireme
