"""Files as the sources people use write them: columns, units and symbols are found."""

import numpy as np
import pandas as pd
import pytest

from kronos.data.options import ReadOptions
from kronos.data.reading.files import inspect_bars, read_market
from kronos.errors import ConfigError, DataError

HOURS = pd.date_range("2024-01-31 09:30", periods=4, freq="h")
PRICES = [
    (10.0, 10.5, 9.5, 10.2),
    (10.2, 10.8, 10.1, 10.6),
    (10.6, 10.7, 10.2, 10.3),
    (10.3, 10.4, 10, 10),
]


def write(folder, *lines, name="bars.csv", encoding="utf-8", end="\n"):
    path = folder / name
    path.write_bytes((end.join(lines) + end).encode(encoding))
    return path


def read(path, **options):
    return read_market(path, ReadOptions(**options))


def fault_of(path, **options):
    with pytest.raises(DataError) as caught:
        read_market(path, ReadOptions(**options))
    assert "\n" not in str(caught.value)
    return str(caught.value)


def mean_price(row):
    return sum(PRICES[row]) / 4


def check_prices(frame):
    np.testing.assert_array_equal(frame[["open", "high", "low", "close"]].to_numpy(), PRICES)


# ---- akshare


def akshare(folder, lots=100, code="000001", factor=1.0, name="a.csv", encoding="utf-8"):
    """Daily bars of akshare, where `lots` shares make one of the volume."""
    rows = [
        f"2024-01-{day:02},{code},{o},{c},{h},{low},{1000 + day},"
        f"{(1000 + day) * lots * factor * (o + h + low + c) / 4:.2f},3.1,1.2,0.12,0.5"
        for day, (o, h, low, c) in enumerate(PRICES, start=2)
    ]
    header = "日期,股票代码,开盘,收盘,最高,最低,成交量,成交额,振幅,涨跌幅,涨跌额,换手率"
    return write(folder, header, *rows, name=name, encoding=encoding)


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "gbk", "gb18030", "utf-16"])
def test_D3_akshare_has_lots_of_100_shares(tmp_path, encoding):
    market, report = read(akshare(tmp_path, encoding=encoding))
    frame = market.frame("000001")
    check_prices(frame)
    assert frame["volume"].tolist() == [100_200.0, 100_300.0, 100_400.0, 100_500.0]
    assert frame["amount"].iloc[0] == round(100_200 * mean_price(0), 2)
    assert report.layout == "akshare"
    assert report.units_converted == (
        "volume times 100, from lots of 100 shares, since amount / (volume * price) is about 100",
    )
    assert report.left_out == ("振幅", "涨跌幅", "涨跌额", "换手率")
    assert report.columns["close"] == "收盘"


def test_akshare_of_hong_kong_has_shares(tmp_path):
    market, report = read(akshare(tmp_path, lots=1, code="00700"))
    assert market.frame("00700")["volume"].iloc[0] == 1002.0
    assert report.units_converted == ()
    assert "volume is in shares: amount / (volume * price) is about 1" in report.notes


def test_akshare_with_adjusted_prices_is_left_where_it_cannot_be_told(tmp_path):
    market, report = read(akshare(tmp_path, factor=0.3))
    assert market.frame("000001")["volume"].iloc[0] == 1002.0
    assert any("is 30, 30, 30, neither 100 nor 1" in note for note in report.notes)


def test_akshare_minutes_and_a_folder_of_files_without_codes(tmp_path):
    header = "时间,开盘,收盘,最高,最低,涨跌幅,涨跌额,成交量,成交额,振幅,换手率"
    for name in ("600000", "000001"):
        rows = [
            f"{time:%Y-%m-%d %H:%M:%S},{o},{c},{h},{low},0,0,10,{1000 * (o + h + low + c) / 4},1,1"
            for time, (o, h, low, c) in zip(HOURS, PRICES, strict=True)
        ]
        write(tmp_path, header, *rows, name=f"{name}.csv")
    market, report = read(tmp_path)
    assert market.symbols == ("000001", "600000")
    assert (market.features[:, 4] == 1000).all()
    assert len(report.units_converted) == 1


def test_lots_that_no_source_tells_are_noted_not_converted(tmp_path):
    rows = [f"2024-01-{day:02},10,10,10,10,5,5000" for day in range(1, 9)]
    market, report = read(write(tmp_path, "时间,开盘,最高,最低,收盘,成交量,成交额", *rows))
    assert (market.features[:, 4] == 5).all()
    assert report.units_converted == ()
    assert any("may be in lots of 100 shares" in note for note in report.notes)


def test_units_in_the_header(tmp_path):
    rows = [f"2024-01-{day:02},10,10,10,10,5,0.5" for day in range(1, 9)]
    path = write(tmp_path, "日期,开盘价,最高价,最低价,收盘价,成交量（手）,成交额(万元)", *rows)
    market, report = read(path)
    assert market.features[0].tolist() == [10, 10, 10, 10, 500, 5000]
    assert len(report.units_converted) == 2
    rows = [row.replace(",0.5", ",7") for row in rows]  # a futures contract is no lot of 100
    market, _ = read(
        write(tmp_path, "日期,开盘价,最高价,最低价,收盘价,成交量(手),成交额(元)", *rows)
    )
    assert market.features[0].tolist() == [10, 10, 10, 10, 5, 7]


# ---- tushare, baostock


def tushare(folder, scale=1):
    rows = [
        f"000001.SZ,2024010{day},{o},{h},{low},{c},9.9,0.1,1.0,{1000 * scale},"
        f"{100 * (o + h + low + c) / 4 * (1000 if scale == 100 else 1)}"
        for day, (o, h, low, c) in enumerate(PRICES, start=2)
    ]
    header = "ts_code,trade_date,open,high,low,close,pre_close,change,pct_chg,vol,amount"
    return write(folder, header, *reversed(rows))


def test_tushare_days_stand_newest_first_in_lots_and_thousands(tmp_path):
    path = tushare(tmp_path)
    assert "sort=True (--sort); the rows stand newest first" in fault_of(path)
    market, report = read(path, sort=True)
    frame = market.frame("000001.SZ")
    check_prices(frame)
    assert frame["volume"].iloc[0] == 100_000.0
    assert frame["amount"].iloc[0] == pytest.approx(100_000 * mean_price(0))
    assert frame.index[0] == pd.Timestamp("2024-01-02")
    assert report.layout == "tushare daily"
    assert [words.split(",")[0] for words in report.units_converted] == [
        "volume times 100",
        "amount times 1000",
    ]
    assert report.changes == {"sorted": 4}


def test_tushare_days_that_were_converted_before_are_left(tmp_path):
    market, report = read(tushare(tmp_path, scale=100), sort=True)
    assert market.features[0, 4] == 100_000.0
    assert report.units_converted == ()


def test_tushare_days_of_hong_kong_are_in_shares(tmp_path):
    path = tushare(tmp_path)
    path.write_text(path.read_text().replace("000001.SZ", "00700.HK"))
    market, _ = read(path, sort=True)
    assert market.features[0, 4] == 1000.0


def test_tushare_minutes_are_in_shares(tmp_path):
    rows = [
        f"600000.SH,{time:%Y-%m-%d %H:%M:%S},{c},{o},{h},{low},100,{100 * mean_price(row)}"
        for row, (time, (o, h, low, c)) in enumerate(zip(HOURS, PRICES, strict=True))
    ]
    market, report = read(
        write(tmp_path, "ts_code,trade_time,close,open,high,low,vol,amount", *rows)
    )
    check_prices(market.frame("600000.SH"))
    assert (market.features[:, 4] == 100).all()
    assert (report.layout, report.units_converted) == ("tushare minutes", ())


def test_baostock_days_with_empty_cells_of_a_suspended_day(tmp_path):
    header = "date,code,open,high,low,close,preclose,volume,amount,adjustflag,turn,tradestatus"
    rows = [
        f"2024-01-0{day},sh.600000,{o},{h},{low},{c},9.9,100,1010,3,0.1,1"
        for day, (o, h, low, c) in enumerate(PRICES, start=2)
    ]
    rows[1] = "2024-01-03,sh.600000,10.2,10.2,10.2,10.2,10.2,,,3,,0"
    path = write(tmp_path, header, *rows)
    assert "column volume, row 2 (line 3): the cell is empty; fill it" in fault_of(path)
    market, report = read(path, fill="drop")
    assert len(market) == 3
    assert report.layout == "baostock"
    assert report.changes == {"dropped": 1}
    assert report.missing == {"volume": 1, "amount": 1}


def test_baostock_minutes_have_the_time_with_thousandths(tmp_path):
    rows = [
        f"{time:%Y-%m-%d},{time:%Y%m%d%H%M%S}000,sh.600000,{o},{h},{low},{c},100,1010,3"
        for time, (o, h, low, c) in zip(HOURS, PRICES, strict=True)
    ]
    header = "date,time,code,open,high,low,close,volume,amount,adjustflag"
    market, report = read(write(tmp_path, header, *rows))
    assert market.frame("sh.600000").index.tolist() == HOURS.tolist()
    assert report.columns["timestamps"] == "time"


# ---- yfinance, Stooq, TradingView


def test_yfinance_of_one_ticker_with_adjusted_closes(tmp_path):
    rows = [
        f"2024-01-0{day},{o},{h},{low},{c},5.5,100" for day, (o, h, low, c) in enumerate(PRICES, 2)
    ]
    market, report = read(write(tmp_path, "Date,Open,High,Low,Close,Adj Close,Volume", *rows))
    check_prices(market.frame("bars"))
    assert (report.layout, report.left_out) == ("yfinance", ("Adj Close",))


@pytest.mark.parametrize(
    "header",
    [
        ["Price,Close,High,Low,Open,Volume", "Ticker,IBM,IBM,IBM,IBM,IBM", "Date,,,,,"],
        ["Price,Close,High,Low,Open,Volume", "Ticker,IBM,IBM,IBM,IBM,IBM"],
        [",Close,High,Low,Open,Volume", ",IBM,IBM,IBM,IBM,IBM", "Date,,,,,"],
        ["Date,Close,High,Low,Open,Volume", ",IBM,IBM,IBM,IBM,IBM"],
        ["Ticker,IBM,IBM,IBM,IBM,IBM", "Price,Close,High,Low,Open,Volume", "Date,,,,,"],
    ],
)
def test_yfinance_with_the_ticker_in_the_header(tmp_path, header):
    rows = [f"2024-01-0{day},{c},{h},{low},{o},100" for day, (o, h, low, c) in enumerate(PRICES, 2)]
    market, report = read(write(tmp_path, *header, *rows))
    check_prices(market.frame("IBM"))
    assert report.layout == "yfinance"
    rows[2] = rows[2].replace("10.3", "x")
    line = len(header) + 3
    assert f"column close, row 3 (line {line}): 'x'" in fault_of(write(tmp_path, *header, *rows))


def test_yfinance_header_without_tickers(tmp_path):
    rows = [f"2024-01-0{day},{c},{h},{low},{o},100" for day, (o, h, low, c) in enumerate(PRICES, 2)]
    market, _ = read(write(tmp_path, "Price,Close,High,Low,Open,Volume", "Date,,,,,", *rows))
    check_prices(market.frame("bars"))


def test_T12_yfinance_of_many_tickers_is_a_symbol_each(tmp_path):
    fields, tickers = ["Close", "High", "Low", "Open", "Volume"], ["IBM", "0700.HK"]
    rows = []
    for day, (o, h, low, c) in enumerate(PRICES, start=2):
        cells = [f"{c},{c * 2}", f"{h},{h * 2}", f"{low},{low * 2}", f"{o},{o * 2}", "100,7"]
        rows.append(f"2024-01-0{day}," + ",".join(cells))
    rows[1] = ",".join(cell if place % 2 else "" for place, cell in enumerate(rows[1].split(",")))
    rows[1] = "2024-01-03" + rows[1]
    path = write(
        tmp_path,
        "Price," + ",".join(field for field in fields for _ in tickers),
        "Ticker," + ",".join(tickers * len(fields)),
        "Date" + "," * 10,
        *rows,
    )
    market, report = read(path)
    assert market.symbols == ("IBM", "0700.HK")
    check_prices(market.frame("IBM"))
    assert market.frame("0700.HK")["open"].tolist() == [20.0, 21.2, 20.6]
    assert "0700.HK has no bar in 1 rows: all of its cells are empty" in report.notes
    assert read(path, symbol="0700.HK")[0].symbols == ("0700.HK",)


def test_yfinance_hours_over_a_clock_change_need_a_zone(tmp_path):
    rows = ["2024-03-08 15:30:00-05:00,1,2,1,2,5", "2024-03-11 09:30:00-04:00,1,2,1,2,5"]
    path = write(tmp_path, "Datetime,Open,High,Low,Close,Volume", *rows)
    assert "row 2 (line 3): '2024-03-11 09:30:00-04:00' has another UTC offset" in fault_of(path)
    assert "timezone='America/New_York' (--timezone)" in fault_of(path)
    market, report = read(path, timezone="America/New_York")
    assert market.zone == report.zone == "America/New_York"
    assert [str(time) for time in market.frame("bars").index] == [
        "2024-03-08 15:30:00-05:00",
        "2024-03-11 09:30:00-04:00",
    ]


def test_stooq(tmp_path):
    rows = [f"2024-01-0{day},{o},{h},{low},{c},100" for day, (o, h, low, c) in enumerate(PRICES, 2)]
    market, report = read(write(tmp_path, "Date,Open,High,Low,Close,Volume", *rows))
    check_prices(market.frame("bars"))
    assert report.layout == "Stooq or yfinance"


@pytest.mark.parametrize(("period", "clock"), [("D", "000000"), ("60", "093000"), ("60", "93000")])
def test_stooq_in_bulk(tmp_path, period, clock):
    header = "<TICKER>,<PER>,<DATE>,<TIME>,<OPEN>,<HIGH>,<LOW>,<CLOSE>,<VOL>,<OPENINT>"
    rows = [
        f"AAPL.US,{period},2024010{day},{clock},{o},{h},{low},{c},100,0"
        for day, (o, h, low, c) in enumerate(PRICES, 2)
    ]
    market, report = read(write(tmp_path, header, *rows, name="aapl.us.txt"))
    check_prices(market.frame("AAPL.US"))
    hour = "00:00" if period == "D" else "09:30"
    assert market.frame("AAPL.US").index[0] == pd.Timestamp(f"2024-01-02 {hour}")
    assert (report.layout, report.columns["timestamps"]) == ("Stooq", "<DATE> + <TIME>")


@pytest.mark.parametrize("spelling", ["epoch", "iso"])
def test_tradingview_with_indicators(tmp_path, spelling):
    times = [
        str(int(time.timestamp())) if spelling == "epoch" else f"{time:%Y-%m-%dT%H:%M:%S}Z"
        for time in HOURS
    ]
    rows = [
        f"{t},{o},{h},{low},{c},NaN,100" for t, (o, h, low, c) in zip(times, PRICES, strict=True)
    ]
    market, report = read(write(tmp_path, "time,open,high,low,close,EMA,Volume", *rows))
    check_prices(market.frame("bars"))
    assert (market.zone, report.layout, report.left_out) == ("UTC", "TradingView", ("EMA",))
    assert market.frame("bars").index[0] == pd.Timestamp("2024-01-31 09:30", tz="UTC")


# ---- crypto


def binance_rows(ticks):
    for time, (o, h, low, c) in zip(HOURS, PRICES, strict=True):
        start = int(time.timestamp()) * ticks
        yield f"{start},{o},{h},{low},{c},7.5,{start + 3599 * ticks},81.25,12,3,33,0"


@pytest.mark.parametrize("ticks", [10**3, 10**6])
@pytest.mark.parametrize(
    "header",
    [
        None,
        "open_time,open,high,low,close,volume,close_time,quote_volume,count,taker_buy_volume,"
        "taker_buy_quote_volume,ignore",
        "Open time,Open,High,Low,Close,Volume,Close time,Quote asset volume,Number of trades,"
        "Taker buy base asset volume,Taker buy quote asset volume,Ignore",
    ],
)
def test_T11_binance_with_and_without_header(tmp_path, header, ticks):
    lines = [header, *binance_rows(ticks)] if header else list(binance_rows(ticks))
    market, report = read(write(tmp_path, *lines, name="BTCUSDT.csv"))
    frame = market.frame("BTCUSDT")
    check_prices(frame)
    assert frame["volume"].iloc[0] == 7.5
    assert frame["amount"].iloc[0] == 81.25
    assert frame.index[0] == pd.Timestamp("2024-01-31 09:30", tz="UTC")
    assert (report.layout, report.rows) == ("Binance", 4)


def test_ccxt_without_header(tmp_path):
    lines = [",".join(row.split(",")[:6]) for row in binance_rows(1000)]
    market, report = read(write(tmp_path, *lines))
    check_prices(market.frame("bars"))
    assert (report.layout, market.features[0, 4]) == ("ccxt", 7.5)
    assert market.features[0, 5] == 7.5 * mean_price(0)


# ---- MetaTrader and its like


@pytest.mark.parametrize("encoding", ["utf-8", "utf-16"])
def test_metatrader_5_counts_ticks_where_nothing_was_traded(tmp_path, encoding):
    header = "<DATE>\t<TIME>\t<OPEN>\t<HIGH>\t<LOW>\t<CLOSE>\t<TICKVOL>\t<VOL>\t<SPREAD>"
    rows = [
        f"{t:%Y.%m.%d}\t{t:%H:%M:%S}\t{o}\t{h}\t{low}\t{c}\t55\t0\t3"
        for t, (o, h, low, c) in zip(HOURS, PRICES, strict=True)
    ]
    path = write(tmp_path, header, *rows, encoding=encoding, end="\r\n")
    market, report = read(path)
    check_prices(market.frame("bars"))
    assert market.frame("bars").index.tolist() == HOURS.tolist()
    assert (market.features[:, 4] == 55).all()
    assert report.layout == "MetaTrader 5"
    assert any("number of ticks" in note for note in report.notes)
    traded = [row.replace("\t0\t3", "\t9\t3") for row in rows]
    market, report = read(write(tmp_path, header, *traded, encoding=encoding))
    assert (market.features[:, 4] == 9).all()
    assert not any("ticks" in note for note in report.notes)


def test_metatrader_4_without_header(tmp_path):
    rows = [
        f"{t:%Y.%m.%d,%H:%M},{o},{h},{low},{c},55"
        for t, (o, h, low, c) in zip(HOURS, PRICES, strict=True)
    ]
    market, report = read(write(tmp_path, *rows, name="EURUSD60.csv"))
    frame = market.frame("EURUSD60")
    check_prices(frame)
    assert frame.index.tolist() == HOURS.tolist()
    assert (report.layout, frame["volume"].iloc[0]) == ("MetaTrader 4", 55)


def test_histdata_without_header(tmp_path):
    rows = [
        f"{t:%Y%m%d %H%M%S};{o};{h};{low};{c};0"
        for t, (o, h, low, c) in zip(HOURS, PRICES, strict=True)
    ]
    market, report = read(write(tmp_path, *rows))
    check_prices(market.frame("bars"))
    assert report.layout == "HistData"
    assert market.frame("bars").index[1] == HOURS[1]


def test_qlib(tmp_path):
    rows = [
        f"SH600000,2024-01-0{day},{o},{h},{low},{c},100,1.5,1005"
        for day, (o, h, low, c) in enumerate(PRICES, 2)
    ]
    header = "instrument,datetime,$open,$high,$low,$close,$volume,$factor,$money"
    market, report = read(write(tmp_path, header, *rows))
    check_prices(market.frame("SH600000"))
    assert (report.layout, report.left_out, market.features[0, 5]) == ("qlib", ("$factor",), 1005)


def test_a_notice_above_the_header_is_told(tmp_path):
    rows = [f"2024-01-0{day},{o},{h},{low},{c},100" for day, (o, h, low, c) in enumerate(PRICES, 2)]
    header = "交易日期,开盘价,最高价,最低价,收盘价,成交量"
    market, report = read(
        write(tmp_path, "数据整理: 某某, 仅供学习", header, *rows, encoding="gbk")
    )
    check_prices(market.frame("bars"))
    assert "the first 1 line(s) are a notice" in report.notes
    rows[3] = rows[3].replace("10.4", "x")
    path = write(tmp_path, "https://example.org", header, *rows)
    assert "column high, row 4 (line 6): 'x'" in fault_of(path)


# ---- columns that the caller names


def test_columns_named_by_the_caller(tmp_path):
    path = write(tmp_path, "Tag,Anfang,Hoch,Tief,Ende,close,n", "2024-01-02,1,3,1,2,9,5")
    assert "no column timestamps, open, high, low; the columns there are 'Tag'" in fault_of(path)
    names = {"timestamps": "Tag", "open": "Anfang", "high": "Hoch", "low": "3", "close": "Ende"}
    with pytest.raises(DataError, match=r"2 columns|no column|high and low"):
        read(path, columns=names)  # the third column is Hoch
    market, report = read(path, columns={**names, "low": "Tief", "volume": "n"})
    assert market.features[0, :5].tolist() == [1, 3, 1, 2, 5]
    assert report.left_out == ("close",)


def test_a_named_column_comes_before_the_known_one(tmp_path):
    path = write(tmp_path, "Date,Open,High,Low,Close,Adj Close", "2024-01-02,1,3,1,2,3")
    assert read(path, columns={"close": "Adj Close"})[0].features[0, 3] == 3
    path = write(tmp_path, "date,time,open,high,low,close", "2024-01-02,2024-01-03,1,3,1,2")
    assert read(path)[0].frame("bars").index[0].day == 3  # the time repeats a date
    assert read(path, columns={"timestamps": "date"})[0].frame("bars").index[0].day == 2


def test_columns_by_number_where_there_is_no_header(tmp_path):
    path = write(tmp_path, "7,2024-01-02,1,3,1,2,000001", "8,2024-01-03,1,3,1,2,000001")
    message = fault_of(path)
    assert "no header, and the 7 columns are of no source that is known" in message
    numbers = dict(
        zip(["timestamps", "open", "high", "low", "close", "symbol"], "234567", strict=True)
    )
    market, report = read(path, columns=numbers)
    assert market.frame("000001")["high"].tolist() == [3.0, 3.0]
    assert report.layout == "numbered columns"


def test_columns_that_are_not_there(tmp_path):
    path = write(tmp_path, "Date,Open,High,Low,Close", "2024-01-02,1,3,1,2")
    assert "no column 'Schluss' for close; the columns there are" in fault_of(
        path, columns={"close": "Schluss"}
    )
    with pytest.raises(ConfigError, match=r"columns may name timestamps, symbol, .* got 'ende'"):
        read(path, columns={"ende": "Close"})


@pytest.mark.parametrize(
    "name", ["turn", "turnover", "换手率", "preclose", "pre_close", "close_time"]
)
def test_names_that_mean_something_else_are_left_out(tmp_path, name):
    path = write(tmp_path, f"date,open,high,low,close,{name}", "2024-01-02,1,3,1,2,9")
    market, report = read(path)
    assert market.features[0].tolist() == [1, 3, 1, 2, 0, 0]
    assert report.left_out == (name,)


def test_an_unnamed_first_column_of_dates_is_the_index_of_a_frame(tmp_path):
    path = write(tmp_path, ",open,high,low,close", "2024-01-02,1,3,1,2")
    market, report = read(path)
    assert market.frame("bars").index[0] == pd.Timestamp("2024-01-02")
    assert any("without a name" in note for note in report.notes)
    path = write(tmp_path, ",open,high,low,close", "0,1,3,1,2")
    assert "no column timestamps" in fault_of(path)


def test_notes_say_what_no_column_has(tmp_path):
    report = inspect_bars(write(tmp_path, "date,open,high,low,close", "2024-01-02,1,3,1,2"))
    assert "no column for volume: it is 0" in report.notes
    assert "no column for amount: it is volume times the mean price" in report.notes
