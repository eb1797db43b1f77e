/* softnd.hpp: the interface of softnd.h for C++17. Link it as softnd.h.
 *
 * Each class owns one handle and closes it when it is destroyed. Destroy objects before their fabric or
 * job. An object converts to its C handle, so each call of softnd.h works on it. Calls throw
 * softnd::error. Calls whose names begin with try_ return a status or a count, throw nothing and
 * allocate nothing.
 *
 * In a program without exceptions (-fno-exceptions) a call that would throw writes the text of its
 * exception to standard error and calls std::abort.
 */
#ifndef SOFTND_SOFTND_HPP
#define SOFTND_SOFTND_HPP

#if __cplusplus < 201703L
#error "softnd.hpp needs C++17: compile with -std=c++17 or newer, or use softnd.h"
#endif

#include <softnd/softnd.h>

#if __has_include(<version>)
#include <version> /* whether there is a std::span */
#endif

#include <array>
#include <cstddef>
#include <cstdint>
#ifndef __cpp_exceptions
#include <cstdio>
#include <cstdlib>
#endif
#include <limits>
#include <memory>
#ifdef __cpp_lib_span
#include <span>
#endif
#include <stdexcept>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

namespace softnd {

/* version returns the version of the library, such as "0.1.0". */
inline const char *version() noexcept { return snd_version(); }

/* error is a failed call: what() is the text of snd_last_error. */
class error : public std::runtime_error {
public:
	error(snd_status status, const std::string &text) : std::runtime_error(text), status_(status) {}
	snd_status status() const noexcept { return status_; }
	const char *name() const noexcept { return snd_status_name(status_); }

private:
	snd_status status_;
};

namespace detail {

/* raise throws an exception, or ends a program that has none. */
template <class Exception> [[noreturn]] void raise(const Exception &e)
{
#ifdef __cpp_exceptions
	throw e;
#else
	std::fprintf(stderr, "softnd: %s\n", e.what());
	std::abort();
#endif
}

} // namespace detail

/* check throws an error if the status of the latest call is a failure. */
inline void check(snd_status status)
{
	if (status != SND_SUCCESS)
		detail::raise(error(status, snd_last_error()));
}

/* check_result throws an error if a request has failed. */
inline void check_result(const snd_result &result)
{
	if (result.status != SND_SUCCESS)
		detail::raise(error(result.status, std::string("request: ") + snd_status_name(result.status)));
}

/* check_result throws an error that also has the cause of the endpoint's failure, if a request of the endpoint has failed. */
inline void check_result(const snd_result &result, snd_endpoint *endpoint)
{
	if (result.status != SND_SUCCESS)
		detail::raise(error(result.status, snd_endpoint_error(endpoint) != SND_SUCCESS ? snd_last_error() : snd_status_name(result.status)));
}

/* span is a view of count elements. It converts from anything that has data() and size(), and from
 * arrays; std::span of C++20 converts to it and from it. */
template <class T> class span {
public:
	using element_type = T;
	using value_type = std::remove_cv_t<T>;
	using iterator = T *;

	constexpr span() noexcept = default;
	constexpr span(T *data, std::size_t count) noexcept : data_(data), size_(count) {}
	template <std::size_t N> constexpr span(T (&array)[N]) noexcept : data_(array), size_(N) {}
	template <class C, class P = decltype(std::declval<C &>().data()), class = decltype(std::declval<C &>().size()),
		class = std::enable_if_t<std::is_convertible<std::remove_pointer_t<P> (*)[], T (*)[]>::value>>
	constexpr span(C &&container) noexcept : data_(container.data()), size_(container.size())
	{
	}
	constexpr T *data() const noexcept { return data_; }
	constexpr std::size_t size() const noexcept { return size_; }
	constexpr bool empty() const noexcept { return size_ == 0; }
	constexpr T &operator[](std::size_t i) const noexcept { return data_[i]; }
	constexpr T *begin() const noexcept { return data_; }
	constexpr T *end() const noexcept { return data_ + size_; }
	/* first returns the first n elements; n is at most size(). */
	constexpr span first(std::size_t n) const noexcept { return span(data_, n); }
	/* part returns n elements from at on. It throws std::out_of_range if they are not in the span. */
	constexpr span part(std::size_t at, std::size_t n) const
	{
		if (at > size_ || n > size_ - at)
			detail::raise(std::out_of_range("softnd::span::part: the elements are not in the span"));
		return span(data_ + at, n);
	}

private:
	T *data_ = nullptr;
	std::size_t size_ = 0;
};

} // namespace softnd

#ifdef __cpp_lib_span
/* A std::span of the elements outlives the softnd::span. */
template <class T> inline constexpr bool std::ranges::enable_borrowed_range<softnd::span<T>> = true;
#endif

namespace softnd {

using sge_list = span<const snd_sge>;

namespace detail {

constexpr std::int64_t close_timeout = 2000000000; /* of destructors: the fabric frees what is still in use then */

inline void close(snd_fabric *h) noexcept { (void)snd_fabric_close(h); }
inline void close(snd_adapter *h) noexcept { (void)snd_adapter_close(h, close_timeout); }
inline void close(snd_mr *h) noexcept { (void)snd_mr_close(h, close_timeout); }
inline void close(snd_mapping *h) noexcept { (void)snd_mapping_close(h, close_timeout); }
inline void close(snd_window *h) noexcept { (void)snd_window_close(h, close_timeout); }
inline void close(snd_cq *h) noexcept { (void)snd_cq_close(h); }
inline void close(snd_srq *h) noexcept { (void)snd_srq_close(h); }
inline void close(snd_endpoint *h) noexcept { (void)snd_endpoint_close(h); }
inline void close(snd_listener *h) noexcept { (void)snd_listener_close(h); }
inline void close(snd_connector *h) noexcept { (void)snd_connector_close(h); }
inline void close(snd_job *h) noexcept { (void)snd_job_close(h); }

/* count converts a length for a call that takes 32 bits; a longer one becomes a value that the call refuses. */
constexpr std::uint32_t count(std::size_t n) noexcept
{
	return n > std::numeric_limits<std::uint32_t>::max() ? std::numeric_limits<std::uint32_t>::max() : static_cast<std::uint32_t>(n);
}

} // namespace detail

/* handle owns a C handle. */
template <class T> class handle {
public:
	handle() noexcept = default;
	explicit handle(T *owned) noexcept : h_(owned) {}
	handle(handle &&other) noexcept : h_(other.release()) {}
	handle &operator=(handle &&other) noexcept
	{
		if (this != &other)
			reset(other.release());
		return *this;
	}
	handle(const handle &) = delete;
	handle &operator=(const handle &) = delete;
	~handle() { reset(); }

	T *get() const noexcept { return h_; }
	operator T *() const & noexcept { return h_; }
	operator T *() const && = delete;
	/* release gives the handle up without closing it. */
	T *release() noexcept { return std::exchange(h_, nullptr); }
	/* reset closes the handle and takes another. */
	void reset(T *owned = nullptr) noexcept
	{
		if (T *old = std::exchange(h_, owned))
			detail::close(old);
	}

private:
	T *h_ = nullptr;
};

namespace detail {

/* memory is what the calls of softnd.h take for the elements of a span. They write only what the rights of a region allow. */
template <class T> struct memory {
	explicit memory(span<T> part) noexcept
		: data(const_cast<std::remove_const_t<T> *>(part.data())), length(part.size() * sizeof(T))
	{
	}
	void *data;
	std::uint64_t length;
};

} // namespace detail

/* made calls make(args..., &handle) and returns the new object. */
template <class Object, class T, class Make, class... Args> Object made(Make make, Args... args)
{
	T *h = nullptr;
	check(make(args..., &h));
	return Object(h);
}

class adapter : public handle<snd_adapter> {
public:
	using handle::handle;
	static adapter open(snd_fabric *fabric) { return made<adapter, snd_adapter>(snd_adapter_open, fabric); }
	snd_adapter_info query() const
	{
		snd_adapter_info info{};
		check((snd_adapter_query)(sizeof info, get(), &info));
		return info;
	}
	std::uint32_t privileged_token() const
	{
		std::uint32_t token = 0;
		check(snd_adapter_privileged_token(get(), &token));
		return token;
	}
};

class fabric : public handle<snd_fabric> {
public:
	using handle::handle;
	static fabric create(std::uint32_t ranks, std::uint64_t size, const snd_fabric_options *options = nullptr)
	{
		return made<fabric, snd_fabric>(snd_fabric_create, sizeof *options, ranks, size, options);
	}
	static fabric attach(int descriptor, std::int32_t rank = -1, const snd_fabric_options *options = nullptr)
	{
		return made<fabric, snd_fabric>(snd_fabric_attach, sizeof *options, descriptor, rank, options);
	}
	static fabric open(const char *name, std::uint32_t ranks, std::uint64_t size, std::int32_t rank = -1, const snd_fabric_options *options = nullptr)
	{
		return made<fabric, snd_fabric>(snd_fabric_open, sizeof *options, name, ranks, size, rank, options);
	}
	int descriptor() const noexcept { return snd_fabric_descriptor(get()); }
	snd_address address() const noexcept { return snd_fabric_address(get()); }
	void set_timeouts(std::int64_t receive, std::int64_t disconnect = SND_DEFAULT_TIMEOUT) const { check(snd_fabric_set_timeouts(get(), receive, disconnect)); }
	int event_fd() const
	{
		int descriptor = -1;
		check(snd_fabric_event_fd(get(), &descriptor));
		return descriptor;
	}
	/* set_event_handler is snd_fabric_set_event_handler. The handler throws nothing. */
	void set_event_handler(snd_event_handler handler, void *arg = nullptr) const { check(snd_fabric_set_event_handler(get(), handler, arg)); }
	void publish(const char *name, snd_address address) const { check(snd_fabric_publish(get(), name, address)); }
	void withdraw(const char *name) const { check(snd_fabric_withdraw(get(), name)); }
	snd_address lookup(const char *name, std::int64_t timeout = SND_FOREVER) const
	{
		snd_address address;
		check(snd_fabric_lookup(get(), name, timeout, &address));
		return address;
	}
	snd_status try_progress() const noexcept { return snd_fabric_progress(get()); }
};

class region : public handle<snd_mr> {
public:
	using handle::handle;
	static region allocate(snd_adapter *adapter, std::uint64_t length, std::uint32_t flags = SND_ALLOW_LOCAL_WRITE)
	{
		return made<region, snd_mr>(snd_mr_allocate, adapter, length, flags);
	}
	/* register_memory registers the elements of a span. Those of a span of const can have no right to write. */
	template <class T>
	static region register_memory(snd_adapter *adapter, span<T> elements, std::uint32_t flags = std::is_const<T>::value ? 0 : SND_ALLOW_LOCAL_WRITE)
	{
		if (std::is_const<T>::value && (flags & SND_ALLOW_REMOTE_WRITE) != 0)
			detail::raise(error(SND_INVALID_PARAMETER, "register memory: SND_ALLOW_LOCAL_WRITE and SND_ALLOW_REMOTE_WRITE are refused "
								   "for a span of const: leave them out, or pass a span of elements that are not const"));
		const detail::memory<T> memory(elements);
		return made<region, snd_mr>(snd_mr_register, adapter, memory.data, memory.length, flags);
	}
	static region create_fast(snd_adapter *adapter, std::uint32_t pages, bool remote = true)
	{
		return made<region, snd_mr>(snd_mr_create_fast, adapter, pages, remote ? 1 : 0);
	}
	/* as returns the memory as elements of a trivially copyable type. */
	template <class T> span<T> as() const noexcept
	{
		static_assert(std::is_trivially_copyable<T>::value, "the memory is shared between processes");
		return span<T>(static_cast<T *>(snd_mr_buffer(get())), snd_mr_length(get()) / sizeof(T));
	}
	span<std::byte> bytes() const noexcept { return as<std::byte>(); }
	std::uint32_t placement() const noexcept { return snd_mr_placement(get()); }
	std::uint64_t address() const noexcept { return snd_mr_address(get()); }
	std::uint32_t local_token() const noexcept { return snd_mr_local_token(get()); }
	std::uint32_t remote_token() const noexcept { return snd_mr_remote_token(get()); }
	snd_window_descriptor descriptor() const
	{
		snd_window_descriptor d{};
		check(snd_mr_query(get(), &d));
		return d;
	}
	/* sge describes n bytes at a place of the region. */
	snd_sge sge(std::size_t at, std::size_t n) const
	{
		(void)bytes().part(at, n);
		return snd_mr_sge(get(), at, n);
	}
	/* close throws if the region is in use; see snd_mr_close. */
	void close(std::int64_t timeout = SND_FOREVER)
	{
		check(snd_mr_close(get(), timeout));
		release();
	}
};

/* mapping lists the pages of a part of a region, for endpoint::fast_register. */
class mapping : public handle<snd_mapping> {
public:
	using handle::handle;
	template <class T> static mapping create(snd_mr *mr, span<T> part)
	{
		const detail::memory<T> memory(part);
		return made<mapping, snd_mapping>(snd_mapping_create, mr, memory.data, memory.length);
	}
	std::vector<std::uint64_t> pages() const
	{
		std::vector<std::uint64_t> list(snd_mapping_pages(get(), nullptr, 0));
		(void)snd_mapping_pages(get(), list.data(), detail::count(list.size()));
		return list;
	}
	std::uint32_t offset() const noexcept { return snd_mapping_offset(get()); }
	void close(std::int64_t timeout = SND_FOREVER)
	{
		check(snd_mapping_close(get(), timeout));
		release();
	}
};

class window : public handle<snd_window> {
public:
	using handle::handle;
	static window create(snd_adapter *adapter) { return made<window, snd_window>(snd_window_create, adapter); }
	snd_window_descriptor descriptor() const
	{
		snd_window_descriptor d{};
		check(snd_window_query(get(), &d));
		return d;
	}
	void close(std::int64_t timeout = SND_FOREVER)
	{
		check(snd_window_close(get(), timeout));
		release();
	}
};

using descriptor_bytes = std::array<std::uint8_t, SND_WINDOW_DESCRIPTOR_SIZE>;

inline descriptor_bytes encode(const snd_window_descriptor &d) noexcept
{
	descriptor_bytes bytes{};
	snd_window_descriptor_encode(&d, bytes.data());
	return bytes;
}

inline snd_window_descriptor decode(const descriptor_bytes &bytes) noexcept
{
	snd_window_descriptor d{};
	snd_window_descriptor_decode(bytes.data(), &d);
	return d;
}

class completion_queue : public handle<snd_cq> {
public:
	using handle::handle;
	static completion_queue create(snd_adapter *adapter, std::uint32_t depth) { return made<completion_queue, snd_cq>(snd_cq_create, adapter, depth); }
	std::int32_t try_poll(span<snd_result> results) const noexcept { return snd_cq_poll(get(), results.data(), detail::count(results.size())); }
	/* poll returns the results that it has taken into the first elements of results. */
	span<snd_result> poll(span<snd_result> results) const
	{
		const std::int32_t n = try_poll(results);
		if (n < 0)
			check(static_cast<snd_status>(n));
		return results.first(static_cast<std::size_t>(n));
	}
	snd_status try_wait(span<snd_result> results, std::uint32_t &taken, std::int64_t timeout = SND_FOREVER) const noexcept
	{
		return snd_cq_wait(get(), results.data(), detail::count(results.size()), timeout, &taken);
	}
	span<snd_result> wait(span<snd_result> results, std::int64_t timeout = SND_FOREVER) const
	{
		std::uint32_t taken = 0;
		check(try_wait(results, taken, timeout));
		return results.first(taken);
	}
	/* wait_one takes one result. It throws why a request of the endpoint has failed. */
	snd_result wait_one(snd_endpoint *endpoint = nullptr, std::int64_t timeout = SND_FOREVER) const
	{
		snd_result result{};
		check(snd_cq_wait_one(get(), endpoint, timeout, &result));
		return result;
	}
	void notify(std::uint32_t type, std::int64_t timeout = SND_FOREVER) const { check(snd_cq_notify(get(), type, timeout)); }
	int event_fd() const
	{
		int descriptor = -1;
		check(snd_cq_event_fd(get(), &descriptor));
		return descriptor;
	}
	void moderate(std::int64_t interval, std::int32_t count) const { check(snd_cq_moderate(get(), interval, count)); }
	void notify_affinity(std::uint16_t &group, std::uint64_t &mask) const { check(snd_cq_notify_affinity(get(), &group, &mask)); }
	snd_cq_stats stats() const
	{
		snd_cq_stats s{};
		check((snd_cq_get_stats)(sizeof s, get(), &s));
		return s;
	}
	void cancel() const { check(snd_cq_cancel(get())); }
	void resize(std::uint32_t depth) const { check(snd_cq_resize(get(), depth)); }
};

class shared_receive_queue : public handle<snd_srq> {
public:
	using handle::handle;
	static shared_receive_queue create(snd_adapter *adapter, const snd_srq_config &config)
	{
		return made<shared_receive_queue, snd_srq>(snd_srq_create, sizeof config, adapter, &config);
	}
	snd_status try_receive(std::uint64_t context, sge_list sge) const noexcept
	{
		return snd_srq_receive(get(), context, sge.data(), detail::count(sge.size()));
	}
	snd_status try_post(span<const snd_request> requests, std::uint32_t &posted) const noexcept
	{
		return snd_srq_post(get(), requests.data(), detail::count(requests.size()), &posted);
	}
	void receive(std::uint64_t context, sge_list sge) const { check(try_receive(context, sge)); }
	void notify_affinity(std::uint16_t &group, std::uint64_t &mask) const { check(snd_srq_notify_affinity(get(), &group, &mask)); }
	void notify(std::int64_t timeout = SND_FOREVER) const { check(snd_srq_notify(get(), timeout)); }
	void cancel() const { check(snd_srq_cancel(get())); }
	void modify(std::uint32_t depth, std::uint32_t threshold) const { check(snd_srq_modify(get(), depth, threshold)); }
};

class endpoint : public handle<snd_endpoint> {
public:
	using handle::handle;
	static endpoint create(snd_adapter *adapter, const snd_endpoint_config &config)
	{
		return made<endpoint, snd_endpoint>(snd_endpoint_create, sizeof config, adapter, &config);
	}
	snd_status try_receive(std::uint64_t context, sge_list sge = {}) const noexcept
	{
		return snd_endpoint_receive(get(), context, sge.data(), detail::count(sge.size()));
	}
	snd_status try_send(std::uint64_t context, sge_list sge = {}, std::uint32_t flags = 0) const noexcept
	{
		return snd_endpoint_send(get(), context, sge.data(), detail::count(sge.size()), flags);
	}
	snd_status try_send_and_invalidate(std::uint64_t context, sge_list sge, std::uint32_t token, std::uint32_t flags = 0) const noexcept
	{
		return snd_endpoint_send_and_invalidate(get(), context, sge.data(), detail::count(sge.size()), token, flags);
	}
	snd_status try_write(std::uint64_t context, sge_list sge, std::uint64_t address, std::uint32_t token, std::uint32_t flags = 0) const noexcept
	{
		return snd_endpoint_write(get(), context, sge.data(), detail::count(sge.size()), address, token, flags);
	}
	snd_status try_read(std::uint64_t context, sge_list sge, std::uint64_t address, std::uint32_t token, std::uint32_t flags = 0) const noexcept
	{
		return snd_endpoint_read(get(), context, sge.data(), detail::count(sge.size()), address, token, flags);
	}
	snd_status try_send_immediate(std::uint64_t context, sge_list sge, std::uint32_t immediate, std::uint32_t flags = 0) const noexcept
	{
		return snd_endpoint_send_immediate(get(), context, sge.data(), detail::count(sge.size()), immediate, flags);
	}
	snd_status try_write_immediate(std::uint64_t context, sge_list sge, std::uint64_t address, std::uint32_t token, std::uint32_t immediate,
		std::uint32_t flags = 0) const noexcept
	{
		return snd_endpoint_write_immediate(get(), context, sge.data(), detail::count(sge.size()), address, token, immediate, flags);
	}
	snd_status try_fetch_and_add(std::uint64_t context, const snd_sge &old, std::uint64_t address, std::uint32_t token, std::uint64_t add,
		std::uint32_t flags = 0) const noexcept
	{
		return snd_endpoint_fetch_and_add(get(), context, &old, 1, address, token, add, flags);
	}
	snd_status try_compare_and_swap(std::uint64_t context, const snd_sge &old, std::uint64_t address, std::uint32_t token, std::uint64_t compare,
		std::uint64_t swap, std::uint32_t flags = 0) const noexcept
	{
		return snd_endpoint_compare_and_swap(get(), context, &old, 1, address, token, compare, swap, flags);
	}
	snd_status try_swap(std::uint64_t context, const snd_sge &old, std::uint64_t address, std::uint32_t token, std::uint64_t value,
		std::uint32_t flags = 0) const noexcept
	{
		return snd_endpoint_swap(get(), context, &old, 1, address, token, value, flags);
	}
	snd_status try_post(span<const snd_request> requests, std::uint32_t &posted) const noexcept
	{
		return snd_endpoint_post(get(), requests.data(), detail::count(requests.size()), &posted);
	}
	void receive(std::uint64_t context, sge_list sge = {}) const { check(try_receive(context, sge)); }
	void send(std::uint64_t context, sge_list sge = {}, std::uint32_t flags = 0) const { check(try_send(context, sge, flags)); }
	void send_and_invalidate(std::uint64_t context, sge_list sge, std::uint32_t token, std::uint32_t flags = 0) const
	{
		check(try_send_and_invalidate(context, sge, token, flags));
	}
	void write(std::uint64_t context, sge_list sge, std::uint64_t address, std::uint32_t token, std::uint32_t flags = 0) const
	{
		check(try_write(context, sge, address, token, flags));
	}
	void read(std::uint64_t context, sge_list sge, std::uint64_t address, std::uint32_t token, std::uint32_t flags = 0) const
	{
		check(try_read(context, sge, address, token, flags));
	}
	void send_immediate(std::uint64_t context, sge_list sge, std::uint32_t immediate, std::uint32_t flags = 0) const
	{
		check(try_send_immediate(context, sge, immediate, flags));
	}
	void write_immediate(std::uint64_t context, sge_list sge, std::uint64_t address, std::uint32_t token, std::uint32_t immediate,
		std::uint32_t flags = 0) const
	{
		check(try_write_immediate(context, sge, address, token, immediate, flags));
	}
	void fetch_and_add(std::uint64_t context, const snd_sge &old, std::uint64_t address, std::uint32_t token, std::uint64_t add,
		std::uint32_t flags = 0) const
	{
		check(try_fetch_and_add(context, old, address, token, add, flags));
	}
	void compare_and_swap(std::uint64_t context, const snd_sge &old, std::uint64_t address, std::uint32_t token, std::uint64_t compare,
		std::uint64_t swap, std::uint32_t flags = 0) const
	{
		check(try_compare_and_swap(context, old, address, token, compare, swap, flags));
	}
	void swap(std::uint64_t context, const snd_sge &old, std::uint64_t address, std::uint32_t token, std::uint64_t value,
		std::uint32_t flags = 0) const
	{
		check(try_swap(context, old, address, token, value, flags));
	}
	template <class T>
	void bind(std::uint64_t context, snd_mr *mr, snd_window *window, span<T> part, std::uint32_t flags) const
	{
		const detail::memory<T> memory(part);
		check(snd_endpoint_bind(get(), context, mr, window, memory.data, memory.length, flags));
	}
	void invalidate(std::uint64_t context, snd_window *window, std::uint32_t flags = 0) const
	{
		check(snd_endpoint_invalidate(get(), context, window, flags));
	}
	void fast_register(std::uint64_t context, snd_mr *mr, const snd_fast_registration &registration, std::uint32_t flags = 0) const
	{
		check(snd_endpoint_fast_register(get(), context, mr, &registration, flags));
	}
	void invalidate(std::uint64_t context, snd_mr *mr, std::uint32_t flags = 0) const
	{
		check(snd_endpoint_invalidate_mr(get(), context, mr, flags));
	}
	void wait_slot(std::int64_t timeout = SND_FOREVER) const { check(snd_endpoint_wait_slot(get(), timeout)); }
	void flush(std::int64_t timeout = SND_FOREVER) const { check(snd_endpoint_flush(get(), timeout)); }
	snd_endpoint_stats stats() const
	{
		snd_endpoint_stats s{};
		check((snd_endpoint_get_stats)(sizeof s, get(), &s));
		return s;
	}
	snd_status error() const noexcept { return snd_endpoint_error(get()); }
};

class connector : public handle<snd_connector> {
public:
	using handle::handle;
	static connector create(snd_adapter *adapter) { return made<connector, snd_connector>(snd_connector_create, adapter); }
	void bind(snd_address address) const { check(snd_connector_bind(get(), address)); }
	void connect(snd_endpoint *endpoint, snd_address address, const snd_connect_params *params = nullptr, std::int64_t timeout = SND_FOREVER) const
	{
		check((snd_connector_connect)(sizeof *params, get(), endpoint, address, params, timeout));
	}
	void complete() const { check(snd_connector_complete(get())); }
	void accept(snd_endpoint *endpoint, const snd_connect_params *params = nullptr, std::int64_t timeout = SND_FOREVER) const
	{
		check((snd_connector_accept)(sizeof *params, get(), endpoint, params, timeout));
	}
	void reject(span<const std::byte> private_data = {}) const
	{
		check(snd_connector_reject(get(), private_data.data(), detail::count(private_data.size())));
	}
	std::vector<std::byte> private_data() const
	{
		std::vector<std::byte> data(512);
		std::uint32_t length = 0;
		check(snd_connector_private_data(get(), data.data(), detail::count(data.size()), &length));
		data.resize(length);
		return data;
	}
	/* read_limits returns the numbers of inbound and outbound Reads. */
	std::pair<std::uint32_t, std::uint32_t> read_limits() const
	{
		std::pair<std::uint32_t, std::uint32_t> limits{};
		check(snd_connector_read_limits(get(), &limits.first, &limits.second));
		return limits;
	}
	snd_address local_address() const { return address(snd_connector_local_address); }
	snd_address peer_address() const { return address(snd_connector_peer_address); }
	void disconnect(std::int64_t timeout = SND_FOREVER) const { check(snd_connector_disconnect(get(), timeout)); }
	void wait_disconnect(std::int64_t timeout = SND_FOREVER) const { check(snd_connector_wait_disconnect(get(), timeout)); }
	void cancel() const { check(snd_connector_cancel(get())); }
	void start_connect(snd_endpoint *endpoint, snd_address address, const snd_connect_params *params = nullptr) const
	{
		check((snd_connector_start_connect)(sizeof *params, get(), endpoint, address, params));
	}
	void start_accept(snd_endpoint *endpoint, const snd_connect_params *params = nullptr) const { check((snd_connector_start_accept)(sizeof *params, get(), endpoint, params)); }
	void start_disconnect() const { check(snd_connector_start_disconnect(get())); }
	/* try_finish returns SND_DEVICE_BUSY while the other side has not answered. */
	snd_status try_finish() const noexcept { return snd_connector_finish(get()); }

private:
	snd_address address(snd_status (*query)(snd_connector *, snd_address *)) const
	{
		snd_address a{};
		check(query(get(), &a));
		return a;
	}
};

class listener : public handle<snd_listener> {
public:
	using handle::handle;
	static listener create(snd_adapter *adapter) { return made<listener, snd_listener>(snd_listener_create, adapter); }
	void bind(snd_address address) const { check(snd_listener_bind(get(), address)); }
	void listen(std::uint32_t backlog = 0) const { check(snd_listener_listen(get(), backlog)); }
	snd_address address() const
	{
		snd_address a{};
		check(snd_listener_address(get(), &a));
		return a;
	}
	connector request(std::int64_t timeout = SND_FOREVER) const { return made<connector, snd_connector>(snd_listener_request, get(), timeout); }
	void cancel() const { check(snd_listener_cancel(get())); }
	void pause(bool hold = true) const { check(snd_listener_pause(get(), hold ? 1 : 0)); }
};

/* job closes the job when it ends, and ignores the status. A program that needs it calls snd_job_close with release(). */
class job : public handle<snd_job> {
public:
	using handle::handle;
	static job init(std::int64_t timeout = SND_FOREVER, const snd_fabric_options *options = nullptr)
	{
		return made<job, snd_job>(snd_job_init, sizeof *options, options, timeout);
	}
	static job join(const char *name, std::uint32_t rank, std::uint32_t size, std::int64_t timeout = SND_FOREVER, const snd_fabric_options *options = nullptr)
	{
		return made<job, snd_job>(snd_job_join, sizeof *options, name, rank, size, options, timeout);
	}
	std::uint32_t rank() const noexcept { return snd_job_rank(get()); }
	std::uint32_t size() const noexcept { return snd_job_size(get()); }
	/* fabric and adapter belong to the job. */
	snd_fabric *fabric() const noexcept { return snd_job_fabric(get()); }
	snd_adapter *adapter() const noexcept { return snd_job_adapter(get()); }
	void barrier(std::int64_t timeout = SND_FOREVER) const { check(snd_job_barrier(get(), timeout)); }
	/* next_death blocks until a rank has died, and returns the rank. */
	std::uint32_t next_death(std::int64_t timeout = SND_FOREVER) const
	{
		std::uint32_t rank = 0;
		check(snd_job_next_death(get(), timeout, &rank));
		return rank;
	}
	/* try_wait_end is snd_job_wait_end, and never throws. */
	snd_status try_wait_end(std::int64_t timeout = SND_FOREVER) const noexcept { return snd_job_wait_end(get(), timeout); }
	/* exchange returns the values of all ranks, in the order of the ranks. */
	template <class T> std::vector<T> exchange(const T &mine, std::int64_t timeout = SND_FOREVER) const
	{
		static_assert(std::is_trivially_copyable<T>::value, "exchange copies bytes");
		std::unique_ptr<T[]> all(new T[size()]); // a vector of bool has no bytes to copy into
		check(snd_job_exchange(get(), &mine, sizeof mine, all.get(), timeout));
		return std::vector<T>(all.get(), all.get() + size());
	}
	/* exchange_windows exchanges descriptors with ranks in any language. */
	std::vector<snd_window_descriptor> exchange_windows(const snd_window_descriptor &mine, std::int64_t timeout = SND_FOREVER) const
	{
		std::vector<snd_window_descriptor> all(size());
		check(snd_job_exchange_windows(get(), &mine, all.data(), timeout));
		return all;
	}
	endpoint connect(std::uint32_t peer, const snd_endpoint_config &config, std::int64_t timeout = SND_FOREVER) const
	{
		return made<endpoint, snd_endpoint>(snd_job_connect, sizeof config, get(), peer, &config, timeout);
	}
	/* connect_all connects with every other rank, and returns the endpoints by rank; the one of this rank owns nothing. */
	std::vector<endpoint> connect_all(const snd_endpoint_config &config, std::int64_t timeout = SND_FOREVER) const
	{
		std::vector<snd_endpoint *> handles(size());
		std::vector<endpoint> all;
		all.reserve(handles.size());
		check((snd_job_connect_all)(sizeof config, get(), &config, timeout, handles.data()));
		for (snd_endpoint *h : handles)
			all.emplace_back(h);
		return all;
	}
	/* connect_ranks connects with each of peers, and returns the endpoints in the order of peers. */
	std::vector<endpoint> connect_ranks(const std::vector<std::uint32_t> &peers, const snd_endpoint_config &config, std::int64_t timeout = SND_FOREVER) const
	{
		std::vector<snd_endpoint *> handles(peers.size());
		std::vector<endpoint> all;
		all.reserve(handles.size());
		check((snd_job_connect_ranks)(sizeof config, get(), peers.data(), static_cast<std::uint32_t>(peers.size()), &config, timeout, handles.data()));
		for (snd_endpoint *h : handles)
			all.emplace_back(h);
		return all;
	}
	listener listen() const { return made<listener, snd_listener>(snd_job_listen, get()); }
	/* accept returns the endpoint and the rank that has dialled. */
	std::pair<endpoint, std::uint32_t> accept(snd_listener *listener, const snd_endpoint_config &config, std::int64_t timeout = SND_FOREVER) const
	{
		snd_endpoint *h = nullptr;
		std::uint32_t peer = 0;
		check((snd_job_accept)(sizeof config, get(), listener, &config, timeout, &h, &peer));
		return {endpoint(h), peer};
	}
	endpoint dial(std::uint32_t peer, const snd_endpoint_config &config, std::int64_t timeout = SND_FOREVER) const
	{
		return made<endpoint, snd_endpoint>(snd_job_dial, sizeof config, get(), peer, &config, timeout);
	}
	/* abort_job ends the process without destructors, and the job. It takes the job that the process joined last. */
	[[noreturn]] static void abort_job(int code, const char *reason) { snd_job_abort(nullptr, code, reason); }
};

} // namespace softnd

#endif
