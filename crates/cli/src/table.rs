//! Columns of text.

/// Lays out rows in columns; the first row is the heading.
pub fn layout(rows: &[Vec<String>]) -> String {
    let columns = rows.iter().map(Vec::len).max().unwrap_or(0);
    let width =
        |column: usize| rows.iter().filter_map(|row| row.get(column)).map(|cell| cell.chars().count()).max();
    let widths: Vec<usize> = (0..columns).map(|column| width(column).unwrap_or(0)).collect();
    let mut out = String::new();
    for row in rows {
        let mut line = String::new();
        for (cell, width) in row.iter().zip(&widths) {
            line.push_str(&format!("{cell:width$}  "));
        }
        out.push_str(line.trim_end());
        out.push('\n');
    }
    out
}

#[cfg(test)]
mod tests {
    #[test]
    fn columns_line_up() {
        let rows = [["NAME", "N"], ["x", "10"]].map(|row| row.map(String::from).to_vec());
        assert_eq!(super::layout(&rows), "NAME  N\nx     10\n");
        assert_eq!(super::layout(&[]), "");
    }
}
