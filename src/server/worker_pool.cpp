#include "server/worker_pool.h"

#include <exception>
#include <utility>

#include "base/log.h"

namespace trine::server {

WorkerPool::WorkerPool(int num_threads, std::size_t max_queued) : max_queued_(max_queued) {
  for (int i = 0; i < num_threads; ++i) {
    threads_.emplace_back([this] { run(); });
  }
}

WorkerPool::~WorkerPool() {
  {
    const std::unique_lock lock(mutex_);
    stopping_ = true;
  }
  changed_.notify_all();
  for (std::thread& thread : threads_) {
    thread.join();
  }
}

bool WorkerPool::post(std::function<void()> work) {
  {
    const std::unique_lock lock(mutex_);
    if (queue_.size() >= max_queued_) {
      return false;
    }
    queue_.push_back(std::move(work));
  }
  changed_.notify_one();
  return true;
}

std::size_t WorkerPool::num_queued() const {
  const std::unique_lock lock(mutex_);
  return queue_.size();
}

void WorkerPool::run() {
  for (;;) {
    std::function<void()> work;
    {
      std::unique_lock lock(mutex_);
      changed_.wait(lock, [this] { return stopping_ || !queue_.empty(); });
      if (queue_.empty()) {
        return;
      }
      work = std::move(queue_.front());
      queue_.pop_front();
    }
    // Of libraries (memory above all): the request loses its responder and gets a 500.
    try {
      work();
    } catch (const std::exception& error) {
      log::error("a request failed: {}", error.what());
    }
  }
}

}  // namespace trine::server
