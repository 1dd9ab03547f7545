// SHA-256 and HMAC against the vectors of FIPS 180-4 and RFC 4231.
#include "trireme/base/sha256.h"

#include <gtest/gtest.h>

#include <set>

namespace trireme {
namespace {

std::string hash(std::string_view text) { return to_hex(sha256(text)); }

TEST(Sha256, StandardVectors) {
  EXPECT_EQ(hash(""), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  EXPECT_EQ(hash("abc"), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  EXPECT_EQ(hash("abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq"),
            "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
  EXPECT_EQ(hash("abcdefghbcdefghicdefghijdefghijkefghijklfghijklmghijklmnhijklmnoijklmnopjklmnopqklmnopqrlmnopqrs"
                 "mnopqrstnopqrstu"),
            "cf5b16a778af8380036ce59e7b0492370b249b11e8f07a51afac45037afee9d1");
  EXPECT_EQ(hash(std::string(1'000'000, 'a')), "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
}

TEST(Sha256, PiecesGiveTheSameAsTheWhole) {
  for (size_t size = 0; size < 200; ++size) {
    const std::string text(size, 'x');
    for (size_t cut = 0; cut <= size; cut += 7) {
      Sha256 pieces;
      pieces.update(std::string_view(text).substr(0, cut)).update(std::string_view(text).substr(cut));
      ASSERT_EQ(to_hex(pieces.finish()), hash(text)) << size << " cut at " << cut;
    }
  }
}

TEST(HmacSha256, VectorsOfRfc4231) {
  struct Vector {
    std::string key, text, mac;
  };
  const Vector vectors[] = {
      {std::string(20, '\x0b'), "Hi There", "b0344c61d8db38535ca8afceaf0bf12b881dc200c9833da726e9376c2e32cff7"},
      {"Jefe", "what do ya want for nothing?", "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843"},
      {std::string(20, '\xaa'), std::string(50, '\xdd'),
       "773ea91e36800e46854db8ebd09181a72959098b3ef8c122d9635514ced565fe"},
      {std::string(131, '\xaa'), "Test Using Larger Than Block-Size Key - Hash Key First",
       "60e431591ee0b67f0d8a26aacbf5b77f8e0bc6213728c5140546040f0ee37f54"},
      {std::string(131, '\xaa'),
       "This is a test using a larger than block-size key and a larger than block-size data. The key needs to be "
       "hashed before being used by the HMAC algorithm.",
       "9b09ffa71b942fcb27635fbcd5b0e944bfdc63644f0713938a7f51535c3a35e2"},
  };
  for (const Vector& v : vectors) EXPECT_EQ(to_hex(HmacSha256(v.key).update(v.text).finish()), v.mac) << v.text;
}

TEST(EqualInConstantTime, SeesEveryBit) {
  const Digest digest = sha256("x");
  EXPECT_TRUE(equal_in_constant_time(digest, sha256("x")));
  for (size_t bit = 0; bit < 256; ++bit) {
    Digest other = digest;
    other[bit / 8] ^= std::byte(1u << (bit % 8));
    EXPECT_FALSE(equal_in_constant_time(digest, other)) << bit;
  }
}

TEST(FillRandom, NeverRepeats) {
  std::set<Digest> seen;
  for (int i = 0; i < 1000; ++i) {
    Digest random;
    fill_random(random);
    EXPECT_TRUE(seen.insert(random).second);
  }
}

}  // namespace
}  // namespace trireme
