// The screen of a terminal: plain text with the control sequences that shells and editors of lines use. Colours are left out.

const SEQUENCE = /^\u001b(?:\[([?>=!]?)([0-9;]*)[ -/]*([@-~])|\]([^\u0007\u001b]*)(?:\u0007|\u001b\\)|[()*+#%]([^])|([^[\]()*+#%]))/;
const PARTIAL = /^\u001b(?:\[[?>=!]?[0-9;]*[ -/]*|\][^\u0007\u001b]*\u001b?|[()*+#%]?)$/;
const MOST_LINES = 2000;
const SPARE = 200; // lines that are removed at once
const MOST_COLUMNS = 500;
const LONGEST_SEQUENCE = 2000;

export class Screen {
  constructor(columns, rows) {
    this.lines = [""];
    this.row = 0;
    this.column = 0;
    this.rest = "";
    this.resize(columns, rows);
  }

  resize(columns, rows) {
    this.columns = Math.min(columns, MOST_COLUMNS);
    this.rows = rows;
  }

  /** The first line of the part that control sequences address. */
  get top() {
    return Math.max(0, this.lines.length - this.rows);
  }

  write(text) {
    let left = this.rest + text;
    this.rest = "";
    while (left) {
      const plain = /^[^\u0000-\u001f\u007f]+/.exec(left);
      if (plain) {
        this.put([...plain[0]]);
        left = left.slice(plain[0].length);
      } else if (left[0] === "\u001b") {
        const found = SEQUENCE.exec(left);
        if (found) this.control(found);
        else if (left.length < LONGEST_SEQUENCE && PARTIAL.test(left)) {
          this.rest = left;
          return;
        }
        left = left.slice(found ? found[0].length : 1);
      } else {
        this.character(left[0]);
        left = left.slice(1);
      }
    }
  }

  put(characters) {
    if (
      this.column === this.lines[this.row].length &&
      this.column + characters.length <= this.columns &&
      characters.every((each) => each.length === 1)
    ) {
      this.lines[this.row] += characters.join("");
      this.column += characters.length;
      return;
    }
    for (let from = 0; from < characters.length;) {
      if (this.column >= this.columns) {
        this.column = 0;
        this.down();
      }
      const part = characters.slice(from, from + this.columns - this.column);
      const line = [...this.lines[this.row]];
      while (line.length < this.column) line.push(" ");
      line.splice(this.column, part.length, ...part);
      this.lines[this.row] = line.join("");
      this.column += part.length;
      from += part.length;
    }
  }

  character(each) {
    if (each === "\r") this.column = 0;
    else if (each === "\n") this.down();
    else if (each === "\b") this.column = Math.max(0, this.column - 1);
    else if (each === "\t") this.column = Math.min(this.columns - 1, (Math.floor(this.column / 8) + 1) * 8);
  }

  down() {
    this.row += 1;
    if (this.row >= this.lines.length) this.lines.push("");
    if (this.lines.length <= MOST_LINES + SPARE) return;
    const extra = this.lines.length - MOST_LINES;
    this.lines.splice(0, extra);
    this.row -= extra;
  }

  control([, mark, parameters, letter]) {
    if (!letter || mark) return;
    const numbers = parameters.split(";").map((each) => Math.min(Number(each) || 0, MOST_LINES));
    const first = Math.max(1, numbers[0]);
    const moves = { A: [-first, 0], B: [first, 0], e: [first, 0], C: [0, first], D: [0, -first] };
    if (moves[letter]) this.go(this.row + moves[letter][0], this.column + moves[letter][1]);
    else if (letter === "G" || letter === "`") this.go(this.row, first - 1);
    else if (letter === "d") this.go(this.top + first - 1, this.column);
    else if (letter === "H" || letter === "f") this.go(this.top + first - 1, Math.max(1, numbers[1] || 1) - 1);
    else if (letter === "K") this.erase(numbers[0]);
    else if (letter === "J") this.clear(numbers[0]);
    else if (letter === "P") this.edit((line) => line.splice(this.column, first));
    else if (letter === "X") this.edit((line) => line.splice(this.column, first, ...Array(Math.min(first, this.columns)).fill(" ")));
    else if (letter === "@") this.edit((line) => line.splice(this.column, 0, ...Array(Math.min(first, this.columns)).fill(" ")));
  }

  go(row, column) {
    const top = this.top;
    this.row = Math.min(Math.max(row, top), top + this.rows - 1);
    this.column = Math.min(Math.max(column, 0), this.columns - 1);
    while (this.lines.length <= this.row) this.lines.push("");
  }

  edit(change) {
    const line = [...this.lines[this.row]];
    change(line);
    this.lines[this.row] = line.slice(0, this.columns).join("");
  }

  erase(how) {
    this.edit((line) => {
      if (how === 0) line.splice(this.column);
      else if (how === 1) line.fill(" ", 0, this.column + 1);
      else line.splice(0);
    });
  }

  clear(how) {
    if (how === 0) {
      this.erase(0);
      this.lines.splice(this.row + 1);
    } else if (how === 1) {
      for (let row = this.top; row < this.row; row += 1) this.lines[row] = "";
      this.erase(1);
    } else {
      const row = this.row - this.top;
      this.lines = Array(row + 1).fill("");
      this.row = row;
    }
  }

  /** Return the text before the cursor, the character under it, and the text behind it. */
  parts() {
    const line = [...this.lines[this.row]];
    while (line.length <= this.column) line.push(" ");
    const before = [...this.lines.slice(0, this.row), line.slice(0, this.column).join("")].join("\n");
    return [before, line[this.column], [line.slice(this.column + 1).join(""), ...this.lines.slice(this.row + 1)].join("\n")];
  }
}
