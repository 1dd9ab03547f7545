#include "trireme/server/server.h"

#include <fmt/format.h>

#include <mutex>
#include <thread>

#include "trireme/base/error.h"
#include "trireme/base/log.h"
#include "trireme/server/server_loop.h"

namespace trireme::server {

struct Server::Impl {
  ServerOptions options;
  Socket listener;
  SocketAddress address;
  std::mutex mutex;  ///< of `loop`
  std::unique_ptr<ServerLoop> loop;
  ServerStats last;  ///< of a server that has been stopped
  std::thread thread;
};

Server::Server(ServerOptions options) : impl_(std::make_unique<Impl>()) {
  if (options.num_servers < 1 || options.index < 0 || options.index >= options.num_servers) {
    throw UsageError(fmt::format("there is no server {} of {}", options.index, options.num_servers));
  }
  if (options.replicate && options.num_servers < 2) {
    throw UsageError("one server cannot be its own replica", "start two servers or more, or switch replication off");
  }
  if (options.credentials.token.empty() && !is_loopback(options.bind)) {
    throw UsageError(fmt::format("a server on {} needs a token", options.bind),
                     "set TRIREME_TOKEN, or serve on 127.0.0.1");
  }
  impl_->listener = listen_on(options.bind, options.port, 1024);
  impl_->address = local_address(impl_->listener);
  impl_->options = std::move(options);
}

Server::~Server() { stop(); }

SocketAddress Server::address() const { return impl_->address; }

void Server::start(std::vector<SocketAddress> addresses) {
  if (static_cast<int>(addresses.size()) != impl_->options.num_servers) {
    throw UsageError(fmt::format("{} addresses of {} servers", addresses.size(), impl_->options.num_servers),
                     "give one for each server, by index");
  }
  {
    const std::lock_guard lock(impl_->mutex);
    if (impl_->loop) throw UsageError("this server has been started already", "start each Server once");
    impl_->loop = std::make_unique<ServerLoop>(impl_->options, std::move(impl_->listener), std::move(addresses));
  }
  impl_->thread = std::thread([loop = impl_->loop.get(), index = impl_->options.index] {
    try {
      loop->run();
    } catch (const std::exception& error) {  // workers see a closed connection, and say so
      log_error("server {} ends: {}", index, error.what());
    }
    loop->hang_up();
  });
}

void Server::stop() {
  if (impl_->thread.joinable()) {
    impl_->loop->stop();
    impl_->thread.join();
  }
  const std::lock_guard lock(impl_->mutex);
  if (impl_->loop) impl_->last = impl_->loop->stats();
  impl_->loop.reset();
  impl_->listener = Socket();
}

bool Server::wait_until_done(Deadline deadline) {
  for (;;) {
    {
      const std::lock_guard lock(impl_->mutex);
      if (!impl_->loop || impl_->loop->is_done()) return true;
    }
    if (deadline.expired()) return false;
    std::this_thread::sleep_for(std::min<Clock::duration>(deadline.left(), std::chrono::milliseconds(20)));
  }
}

ServerStats Server::stats() const {
  const std::lock_guard lock(impl_->mutex);
  return impl_->loop ? impl_->loop->stats() : impl_->last;
}

std::vector<std::unique_ptr<Server>> start_local_servers(int num_servers, const ServerOptions& options) {
  std::vector<std::unique_ptr<Server>> servers;
  for (int index = 0; index < num_servers; ++index) {
    ServerOptions own = options;
    own.index = index;
    own.num_servers = num_servers;
    servers.push_back(std::make_unique<Server>(std::move(own)));
  }
  const std::vector<SocketAddress> addresses = addresses_of(servers);
  for (const auto& server : servers) server->start(addresses);
  return servers;
}

std::vector<SocketAddress> addresses_of(const std::vector<std::unique_ptr<Server>>& servers) {
  std::vector<SocketAddress> addresses;
  for (const auto& server : servers) addresses.push_back(server->address());
  return addresses;
}

}  // namespace trireme::server
