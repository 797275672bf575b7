"use strict";
// Lists that can be long: the server searches, orders and cuts them, so that ten thousand rows cost a page what is seen of them. Uses what page.js has.

const FIRST = 15, AT_ONCE = 1000, TYPED = 250;

class List {
  // Elements `id`, `id-filter` and `id-foot`; `path` of the API, whose answer has the rows as `name`. A column: the field to order by, its title, what a row shows.
  constructor(id, path, name, columns) {
    Object.assign(this, { path, name, columns, table: $(id), head: make("tr"), search: "", asked: 0 });
    this.reset();
    this.said = make("span");
    this.more = make("button", { class: "more", onclick: () => { this.wanted *= 4; quietly(() => this.read()); } }, "Show more");
    $(id + "-foot").append(this.said, " ", this.more);
    $(id + "-filter").oninput = event => {
      this.search = event.target.value.trim();
      this.wanted = FIRST;
      clearTimeout(this.typed);
      this.typed = setTimeout(() => quietly(() => this.read()), TYPED);
    };
    this.table.append(make("thead", {}, this.head), make("tbody"));
  }

  // For another router; what is searched for stays.
  reset() {
    Object.assign(this, { wanted: FIRST, by: null, down: true, rows: [], told: null });
    this.drawHead();
  }

  async read() {
    const mine = ++this.asked, rows = [];
    let told;
    do {
      const query = new URLSearchParams({ search: this.search, offset: rows.length, limit: Math.min(AT_ONCE, this.wanted - rows.length) });
      if (this.by) { query.set("sort", this.by); query.set("order", this.down ? "desc" : "asc"); }
      told = await get(of(`${this.path}?${query}`));
      rows.push(...told[this.name]);
    } while (told[this.name].length && rows.length < Math.min(this.wanted, told.matching));
    // An answer that a later question has overtaken is not shown.
    if (mine !== this.asked) return;
    Object.assign(this, { rows, told });
    this.draw();
  }

  drawHead() {
    this.head.replaceChildren(...this.columns.map(([key, title]) => key === null ? make("th", {}, title) : make("th", this.by === key ? { "aria-sort": this.down ? "descending" : "ascending" } : {},
      make("button", { onclick: () => this.order(key) }, title + (this.by === key ? (this.down ? " ↓" : " ↑") : "")))));
  }

  order(key) {
    // Names from the first letter, numbers from the most.
    this.down = this.by === key ? !this.down : typeof this.rows[0]?.[key] !== "string";
    this.by = key;
    this.drawHead();
    quietly(() => this.read());
  }

  draw() {
    const most = Math.max(1, ...this.rows.map(row => row.bps));
    this.table.tBodies[0].replaceChildren(...this.rows.map(row => make("tr", {}, ...this.columns.map(([, , shows]) => make("td", {}, ...[shows(row, most)].flat())))));
    const number = value => value.toLocaleString("en"), { matching, total } = this.told;
    const found = matching < total ? `${number(matching)} found among ${number(total)}` : number(total);
    this.said.textContent = this.rows.length < matching ? `${number(this.rows.length)} of ${found}.` : matching < total || !total ? `${found}.` : "";
    this.more.hidden = this.rows.length >= matching;
  }
}

// A bar beside a number.
function barred(text, part) {
  const bar = make("span", { class: "bar", "aria-hidden": "true" }, make("i"));
  bar.firstChild.style.width = Math.min(100, part * 100) + "%";
  return [text, bar];
}
