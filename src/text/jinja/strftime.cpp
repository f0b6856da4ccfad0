#include "text/jinja/strftime.h"

#include <array>
#include <chrono>

namespace trine::text::jinja {

namespace {

struct Time {
  std::int64_t year = 0;
  int month = 0;  // 1..12
  int day = 0;
  int hour = 0;
  int minute = 0;
  int second = 0;
  int weekday = 0;   // Sunday is 0
  int year_day = 0;  // 1..366
  std::int64_t unix_s = 0;
};

// Proleptic Gregorian calendar.
Time split(std::int64_t unix_s) {
  Time t;
  t.unix_s = unix_s;
  std::int64_t days = unix_s / 86400;
  std::int64_t rest = unix_s % 86400;
  if (rest < 0) {
    rest += 86400;
    --days;
  }
  t.hour = static_cast<int>(rest / 3600);
  t.minute = static_cast<int>(rest / 60 % 60);
  t.second = static_cast<int>(rest % 60);
  const std::chrono::sys_days day{std::chrono::days{days}};
  const std::chrono::year_month_day date{day};
  t.year = static_cast<int>(date.year());
  t.month = static_cast<int>(static_cast<unsigned>(date.month()));
  t.day = static_cast<int>(static_cast<unsigned>(date.day()));
  t.weekday = static_cast<int>(std::chrono::weekday{day}.c_encoding());
  t.year_day = static_cast<int>((day - std::chrono::sys_days{date.year() / 1 / 1}).count()) + 1;
  return t;
}

constexpr std::array<std::string_view, 12> kMonths = {
    "January", "February", "March",     "April",   "May",      "June",
    "July",    "August",   "September", "October", "November", "December"};
constexpr std::array<std::string_view, 7> kDays = {"Sunday",   "Monday", "Tuesday", "Wednesday",
                                                   "Thursday", "Friday", "Saturday"};

// A number with `width` digits; the flag '-' drops the padding, '_' pads with blanks, '0' with
// zeros.
std::string number(std::int64_t n, int width, char flag, char pad = '0') {
  pad = flag == '_' ? ' ' : flag == '0' ? '0' : pad;
  std::string text = std::to_string(n);
  if (flag != '-' && static_cast<int>(text.size()) < width) {
    text.insert(0, static_cast<std::size_t>(width) - text.size(), pad);
  }
  return text;
}

int hour12(int hour) {
  return hour % 12 == 0 ? 12 : hour % 12;
}

// ISO 8601 week number and the year it belongs to.
std::pair<int, std::int64_t> iso_week(const Time& t) {
  const int weekday = (t.weekday + 6) % 7;  // Monday is 0
  const int week = (t.year_day - 1 - weekday + 10) / 7;
  const auto leap = [](std::int64_t y) { return (y % 4 == 0 && y % 100 != 0) || y % 400 == 0; };
  const auto weeks_in = [&](std::int64_t y, int first_weekday) {
    return first_weekday == 3 || (first_weekday == 2 && leap(y)) ? 53 : 52;
  };
  const int first = ((weekday - (t.year_day - 1)) % 7 + 7) % 7;
  if (week < 1) {
    const int days = leap(t.year - 1) ? 366 : 365;
    return {weeks_in(t.year - 1, ((first - days) % 7 + 7) % 7), t.year - 1};
  }
  if (week > weeks_in(t.year, first)) {
    return {1, t.year + 1};
  }
  return {week, t.year};
}

Result<std::string> directive(char c, char flag, const Time& t) {
  switch (c) {
    case 'Y':
      return number(t.year, 1, flag);
    case 'C':
      return number(t.year / 100, 2, flag);
    case 'y':
      return number((t.year % 100 + 100) % 100, 2, flag);
    case 'G':
      return number(iso_week(t).second, 1, flag);
    case 'V':
      return number(iso_week(t).first, 2, flag);
    case 'm':
      return number(t.month, 2, flag);
    case 'd':
      return number(t.day, 2, flag);
    case 'e':
      return number(t.day, 2, flag, ' ');
    case 'j':
      return number(t.year_day, 3, flag);
    case 'H':
      return number(t.hour, 2, flag);
    case 'k':
      return number(t.hour, 2, flag, ' ');
    case 'I':
      return number(hour12(t.hour), 2, flag);
    case 'l':
      return number(hour12(t.hour), 2, flag, ' ');
    case 'M':
      return number(t.minute, 2, flag);
    case 'S':
      return number(t.second, 2, flag);
    case 'f':
      return std::string("000000");
    case 's':
      return number(t.unix_s, 1, flag);
    case 'u':
      return number(t.weekday == 0 ? 7 : t.weekday, 1, flag);
    case 'w':
      return number(t.weekday, 1, flag);
    case 'U':
      return number((t.year_day + 6 - t.weekday) / 7, 2, flag);
    case 'W':
      return number((t.year_day + 6 - (t.weekday + 6) % 7) / 7, 2, flag);
    case 'B':
      return std::string(kMonths[static_cast<std::size_t>(t.month - 1)]);
    case 'b':
    case 'h':
      return std::string(kMonths[static_cast<std::size_t>(t.month - 1)].substr(0, 3));
    case 'A':
      return std::string(kDays[static_cast<std::size_t>(t.weekday)]);
    case 'a':
      return std::string(kDays[static_cast<std::size_t>(t.weekday)].substr(0, 3));
    case 'p':
      return std::string(t.hour < 12 ? "AM" : "PM");
    case 'P':
      return std::string(t.hour < 12 ? "am" : "pm");
    case 'z':
    case 'Z':
      return std::string();  // the clock has no zone, as Python's naive datetime
    case 'n':
      return std::string("\n");
    case 't':
      return std::string("\t");
    case '%':
      return std::string("%");
    default:
      return fail(ErrorCode::kUnsupported, "strftime_now does not know the directive '%{}'", c);
  }
}

// Directives that stand for others.
std::string_view composite(char c) {
  switch (c) {
    case 'F':
      return "%Y-%m-%d";
    case 'T':
    case 'X':
      return "%H:%M:%S";
    case 'D':
    case 'x':
      return "%m/%d/%y";
    case 'R':
      return "%H:%M";
    case 'r':
      return "%I:%M:%S %p";
    case 'c':
      return "%a %b %e %H:%M:%S %Y";
    default:
      return {};
  }
}

}  // namespace

Result<std::string> format_time(std::string_view format, std::int64_t unix_s) {
  constexpr std::int64_t kLimit =
      253'402'300'799;  // the end of year 9999, where Python's dates end too
  if (unix_s < -62'135'596'800 || unix_s > kLimit) {
    return fail(ErrorCode::kInvalidArgument, "the clock value {} is outside of the years 1 to 9999",
                unix_s);
  }
  const Time t = split(unix_s);
  std::string out;
  for (std::size_t i = 0; i < format.size(); ++i) {
    if (format[i] != '%' || i + 1 >= format.size()) {
      out += format[i];
      continue;
    }
    char c = format[++i];
    char flag = '\0';
    if ((c == '-' || c == '_' || c == '0') && i + 1 < format.size()) {
      flag = c;
      c = format[++i];
    }
    if (const std::string_view longer = composite(c); !longer.empty()) {
      TRINE_TRY_ASSIGN(const std::string text, format_time(longer, unix_s));
      out += text;
      continue;
    }
    TRINE_TRY_ASSIGN(const std::string text, directive(c, flag, t));
    out += text;
  }
  return out;
}

}  // namespace trine::text::jinja
